package mysql

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/testdb"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // of its own certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.file = writePEM(t, "CERTIFICATE", a.cert.Raw)
	return a
}

// sign makes a certificate and its key; an authority without a certificate
// signs its own.
func (a *authority) sign(t *testing.T, cert *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = cert, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return signed, key
}

func writePEM(t *testing.T, kind string, raw []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCAFileVouchesForTheServer(t *testing.T) {
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	server := testdb.StartServer(t, "ssl-ca="+ours.file,
		"ssl-cert="+writePEM(t, "CERTIFICATE", cert.Raw), "ssl-key="+writePEM(t, "PRIVATE KEY", der))
	dsn := server.Database(t) + "?tls=true"

	var name, cipher string
	if err := openDB(t, dsn, CAFile(ours.file)).QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher); err != nil || cipher == "" {
		t.Errorf("with the server's authority: cipher %q, %v", cipher, err)
	}
	for what, opts := range map[string][]OpenOption{"another": {CAFile(theirs.file)}, "the system's": nil} {
		if err := openDB(t, dsn, opts...).PingContext(t.Context()); !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("with %s authority: got %v", what, err)
		}
	}
}

func TestCAFileThatChecksNothingIsRefused(t *testing.T) {
	const server = "user:s3cret@tcp(db.example:3306)/mq"
	good := newAuthority(t, "ours").file
	key := writePEM(t, "PRIVATE KEY", []byte("k"))
	for _, c := range []struct{ dsn, file, want string }{
		{server, good, "add tls=true"},
		{server + "?tls=false", good, "add tls=true"},
		{server + "?tls=skip-verify", good, "add tls=true"},
		{server + "?tls=preferred", good, "add tls=true"},
		{server + "?tls=true&allowFallbackToPlaintext=true", good, "in place of any other tls and of allowFallbackToPlaintext"},
		{server + "?tls=true", "/nonexistent/ca.pem", "no such file or directory; want a file of PEM certificates"},
		{server + "?tls=true", key, "holds no certificate"},
	} {
		_, err := Open(c.dsn, CAFile(c.file))
		if _, ok := errors.AsType[*backend.FieldError](err); !ok || !strings.Contains(err.Error(), `CA file "`+c.file+`": `) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: got %v", c.dsn, c.file, err)
		}
	}
	if db, err := Open(server+"?tls=1", CAFile(good)); err != nil {
		t.Error(err)
	} else if err := db.Close(); err != nil {
		t.Error(err)
	}
}
