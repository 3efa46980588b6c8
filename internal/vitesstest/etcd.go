package vitesstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// findEtcd finds etcd on PATH or beside Vitess's programs, where Debian's is unpacked if there is none: installing the
// package would start a service.
func findEtcd(ctx context.Context, programs string) (string, error) {
	if path, err := exec.LookPath("etcd"); err == nil {
		return filepath.Abs(path)
	}
	unpacked := filepath.Join(programs, "debian", "usr", "bin", "etcd")
	if _, err := os.Stat(unpacked); err == nil {
		return unpacked, nil
	}
	const remedy = "no etcd on PATH, which keeps a Vitess cluster's topology; install it (Debian and Ubuntu: apt-get install etcd-server; macOS: brew install etcd)"
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("%s", remedy)
	}
	fmt.Fprintln(os.Stderr, "vitesstest: no etcd found, unpacking Debian's etcd-server into", programs)
	// Put in its place at once: others may be looking for it, and a half is no program. Whoever comes second finds it there.
	const script = `set -e
work=$(mktemp -d "$1.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download etcd-server || { apt-get update && apt-get download etcd-server; }
dpkg-deb --extract etcd-server*.deb new
chmod 755 new
mv -T new "$1" || [ -x "$1/usr/bin/etcd" ]`
	if out, err := exec.CommandContext(ctx, "/bin/sh", "-c", script, "unpack", filepath.Join(programs, "debian")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", remedy, err, out)
	}
	return unpacked, nil
}
