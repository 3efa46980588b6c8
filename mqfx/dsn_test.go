package mqfx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/yaml.v2"
	"pgregory.net/rapid"
)

func TestDSNShowsWhoAndWhere(t *testing.T) {
	for dsn, want := range map[DSN]string{
		"":                                  "",
		"mq:secret@tcp(db.local:3306)/mq":   "mq@db.local:3306/mq",
		"mq:sec@re/t@tcp(db:1)/mq?tls=true": "mq@db:1/mq",
		"mq@tcp(db:1)/mq":                   "mq@db:1/mq",
		"mq:secret@unix(/run/db.sock)/mq":   "mq@/run/db.sock/mq",
		"tcp(db:1)/mq":                      "db:1/mq",
		"mq:secret@/mq":                     "mq@127.0.0.1:3306/mq",

		"mq:secret":                          "(unreadable DSN)",
		"mq:secret/mq":                       "(unreadable DSN)",
		"mq:sec/ret@tcp(db:1)":               "(unreadable DSN)",
		"secret(db:1/mq":                     "(unreadable DSN)",
		"mq:secret(tcp(db:1))/mq":            "(unreadable DSN)",
		"mq:secret@tcp(db:1)/mq?x=a/secret@": "(unreadable DSN)",
		"mysql://mq:secret@db:1/mq":          "(unreadable DSN)",
	} {
		if got := dsn.String(); got != want {
			t.Errorf("%s shows as %q, want %q", string(dsn), got, want)
		}
	}
}

// The file is for the start to read: a test of the same application on the
// memory backend does without.
func TestCAFileIsGivenToTheDriver(t *testing.T) {
	for dsn, want := range map[DSN]string{
		"u@tcp(127.0.0.1:1)/d?tls=true": `mq.tls_ca_file "/nonexistent/ca.pem": open /nonexistent/ca.pem: no such file`,
		"u@tcp(127.0.0.1:1)/d":          `mq.tls_ca_file "/nonexistent/ca.pem": the DSN does not have the server's certificate checked; add tls=true`,
	} {
		app := fx.New(Module, WithConfig(Config{DSN: dsn, TLSCAFile: "/nonexistent/ca.pem"}), fxtest.WithTestLogger(t))
		if app.Err() != nil {
			t.Fatal(app.Err())
		}
		if err := app.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v", dsn, err)
		}
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		password := "s3cr3t" + rapid.StringMatching(`[a-z$@:/?()%&=#]{0,8}`).Draw(t, "password")
		form := rapid.SampledFrom([]string{
			"mq:%s@tcp(db:1)/mq", "mq:%s@tcp(db:1)/mq?tls=true", "mq:%s@db/mq", "mq:%s@tcp(db:1)", "mq:%s", "mq:%s/mq", "mysql://mq:%s@db:1/mq",
		}).Draw(t, "form")
		c := DefaultConfig()
		c.DSN = DSN(fmt.Sprintf(form, password))

		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			fmt.Fprintf(&out, verb+verb+verb, c, &c, c.DSN)
		}
		fmt.Fprint(&out, c)
		printed, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		out.Write(printed)
		for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
			text, err := marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "config", c, "dsn", c.DSN)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "config", c, "dsn", c.DSN)
		for _, encoder := range []zapcore.Encoder{
			zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
		} {
			zap.New(zapcore.NewCore(encoder, zapcore.AddSync(&out), zap.DebugLevel)).Sugar().Infow("x", "config", c, "dsn", c.DSN)
		}
		if strings.Contains(out.String(), "s3cr3t") {
			t.Fatalf("%s shows in\n%s", string(c.DSN), out.String())
		}
	})
}
