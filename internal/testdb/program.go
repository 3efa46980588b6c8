package testdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// debianPackages hold the server and, for a script of its, my_print_defaults, but unlike mariadb-server no service.
var debianPackages = []string{"mariadb-server-core", "mariadb-client-core"}

var errNoServer = errors.New("no database server: neither mysqld nor mariadbd with mariadb-install-db is on PATH; " +
	"install one (Debian and Ubuntu: apt-get install " + strings.Join(debianPackages, " ") + "; macOS: brew install mariadb) " +
	"or name a running one in " + EnvDSN + ", such as root:secret@tcp(127.0.0.1:3306)/")

// program is an installed database server.
type program struct {
	server  string // path of mariadbd or mysqld
	install string // path of mariadb-install-db, empty for MySQL, whose server does it itself
}

// findProgram finds a server, or installs one where it may.
func findProgram(ctx context.Context) (program, error) {
	p, err := lookProgram(ctx)
	if !errors.Is(err, errNoServer) || os.Geteuid() != 0 {
		return p, err
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return program{}, errNoServer
	}

	// The tests of several packages run at once and find no server at once: one installs, the others wait for it.
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "tenantmq-install.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return program{}, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return program{}, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if p, err := lookProgram(ctx); !errors.Is(err, errNoServer) {
		return p, err
	}
	fmt.Fprintln(os.Stderr, "testdb: no database server found, installing", strings.Join(debianPackages, " "))
	if err := aptInstall(ctx); err != nil {
		return program{}, errors.Join(errNoServer, err)
	}
	return lookProgram(ctx)
}

// lookProgram finds an installed server; the error is errNoServer if there is none.
func lookProgram(ctx context.Context) (program, error) {
	server, err := look("mariadbd", "mysqld")
	if err != nil {
		return program{}, errNoServer
	}
	// MariaDB installs itself under MySQL's name, too.
	version, err := exec.CommandContext(ctx, server, "--no-defaults", "--version").Output()
	if err != nil {
		return program{}, fmt.Errorf("ask %s for its version: %w", server, err)
	}
	if !bytes.Contains(version, []byte("MariaDB")) {
		return program{server: server}, nil
	}
	install, err := look("mariadb-install-db", "mysql_install_db")
	if err != nil {
		return program{}, errNoServer
	}
	if _, err := look("my_print_defaults"); err != nil { // the script needs it, but is packaged without
		return program{}, errNoServer
	}
	return program{server: server, install: install}, nil
}

// look finds the first of names on PATH or where distributions put servers, which is not on every user's PATH.
func look(names ...string) (string, error) {
	for _, name := range names {
		for _, file := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
			if path, err := exec.LookPath(file); err == nil {
				return filepath.Abs(path)
			}
		}
	}
	return "", fmt.Errorf("%q: %w", names, exec.ErrNotFound)
}

// arguments returns a command line for the server that reads no configuration of the machine's.
func (p program) arguments(data string, settings ...string) []string {
	// Temporary files stay apart from those of other servers, which sweep theirs.
	args := []string{"--no-defaults", "--datadir=" + data, "--tmpdir=" + filepath.Dir(data)}
	if os.Geteuid() == 0 {
		// The server refuses root unless told so. Another user could not enter the private directory.
		args = append(args, "--user=root")
	}
	for _, setting := range settings {
		args = append(args, "--"+setting)
	}
	return args
}

func (p program) createDataDir(ctx context.Context, data string) error {
	name, args := p.server, p.arguments(data, "initialize-insecure")
	if p.install != "" {
		name, args = p.install, p.arguments(data, "skip-test-db")
	}
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("create a database directory with %s: %w\n%s", name, err, out)
	}
	return nil
}

func aptInstall(ctx context.Context) error {
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "-y", "--no-install-recommends"}, debianPackages...),
	} {
		for {
			cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			out, err := cmd.CombinedOutput()
			if err == nil {
				break
			}
			// apt-get waits for dpkg's lock, but not for that of its own lists.
			if !bytes.Contains(out, []byte("Could not get lock")) {
				return fmt.Errorf("apt-get %q: %w\n%s", args, err, out)
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("apt-get %q: %w\n%s", args, ctx.Err(), out)
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}
