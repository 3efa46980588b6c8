package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgresProgram is an installed PostgreSQL.
type postgresProgram struct{ server, initdb string }

var errNoPostgres = errors.New("no PostgreSQL: neither PATH nor /usr/lib/postgresql has postgres and initdb; " +
	"install it (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql)")

// findPostgres finds a server, or installs one where it may.
func findPostgres(ctx context.Context) (postgresProgram, error) {
	p, err := lookPostgres()
	if err == nil || os.Geteuid() != 0 {
		return p, err
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return postgresProgram{}, errNoPostgres
	}
	if err := installPostgres(ctx); err != nil {
		return postgresProgram{}, errors.Join(errNoPostgres, err)
	}
	return lookPostgres()
}

// lookPostgres takes what PATH has, else the newest that Debian keeps aside.
func lookPostgres() (postgresProgram, error) {
	server, serverErr := exec.LookPath("postgres")
	initdb, initdbErr := exec.LookPath("initdb")
	if serverErr == nil && initdbErr == nil {
		return postgresProgram{server, initdb}, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return postgresProgram{}, err
	}
	version := func(bin string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(bin))) // one without a number is the oldest
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	for _, bin := range found {
		p := postgresProgram{filepath.Join(bin, "postgres"), filepath.Join(bin, "initdb")}
		if _, err := exec.LookPath(p.server); err != nil {
			continue
		}
		if _, err := exec.LookPath(p.initdb); err == nil {
			return p, nil
		}
	}
	return postgresProgram{}, errNoPostgres
}

// noCluster is read by Debian's packages. Without it they would make a cluster
// of the machine's and start it.
const noCluster = "/etc/postgresql-common/createcluster.d/tenantmq.conf"

func installPostgres(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(noCluster), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(noCluster, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(noCluster)) }()
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "postgresql"}} {
		if err := aptGet(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

func aptGet(ctx context.Context, args []string) error {
	for {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		// It waits for dpkg's lock, but not for that of its own lists.
		if !bytes.Contains(out, []byte("Could not get lock")) {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), ctx.Err(), out)
		case <-time.After(time.Second):
		}
	}
}

// account is whom the server runs as where this process is root, whom it
// refuses; nil is this process's own user.
func (p *Postgres) account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(postgresUser)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root: %w; add a user named %s", err, postgresUser)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
