// Package vitesstest starts a Vitess cluster for tests: etcd, a MariaDB or MySQL server and a vttablet for each shard, and
// a vtgate, on free loopback ports.
//
// Vitess itself is no dependency: its programs are built from the module in the directory vitess, by make vitess-programs.
// Tests that run on a cluster that somebody else has started find vtgate's DSN in [EnvDSN]; internal/cmd/withvitess sets it.
// A test that has to break a cluster starts its own with [Start].
//
// vtgate runs as a queue's should: --transaction-mode SINGLE refuses transactions over several shards, and --no-scatter
// selects that go to all of them. Nothing is replicated.
package vitesstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

// EnvDSN is the environment variable with the DSN of a running cluster's vtgate, the keyspace included.
const EnvDSN = "MQ_TEST_VITESS"

// EnvPrograms is the environment variable with the absolute path of the directory that vtgate, vttablet and vtctldclient
// are in.
const EnvPrograms = "MQ_VITESS_PROGRAMS"

// Keyspace is the name of the sharded keyspace, and of the database on each shard's server.
const Keyspace = "mq"

const (
	cell       = "test"
	globalRoot = "/vitess/global"
	// firstUID numbers the tablets.
	firstUID = 100
	// startTimeout bounds the start of each part.
	startTimeout = 2 * time.Minute
)

// Config says what to start.
type Config struct {
	// Shards is a power of two from 1 to 256.
	Shards int
	// Programs is the directory with vtgate, vttablet and vtctldclient; etcd is looked for there and on PATH.
	Programs string
	// Schema and VSchema are applied to the keyspace.
	Schema, VSchema string
}

// A Cluster is running until it is stopped, or until this process has ended for whatever reason. Its methods are safe for
// concurrent use.
type Cluster struct {
	// Shards are in the order of their key ranges.
	Shards []*Shard
	// Gate is vtgate.
	Gate *Process

	cfg      Config
	dir      *directory
	etcd     *Process
	etcdPort int
	gatePort int
	gateWeb  int // port of vtgate's status pages
}

// A Shard is one database server and the tablet before it.
type Shard struct {
	// Name is the key range, such as "-80".
	Name string
	// Server is the database.
	Server *testdb.Server
	// Tablet is the vttablet.
	Tablet *Process

	web int // port of the tablet's status pages
}

// Status returns the address of the tablet's status page; its counters are beside it, at /debug/vars and /metrics.
func (s *Shard) Status() string { return fmt.Sprintf("http://127.0.0.1:%d/debug/status", s.web) }

// DSN returns the DSN of the shard's database, which leads past Vitess.
func (s *Shard) DSN() string { return s.Server.DSN() + Keyspace }

// Start starts a cluster and returns once it takes writes on every shard. The caller must Stop it.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Shards < 1 || cfg.Shards > 256 || cfg.Shards&(cfg.Shards-1) != 0 {
		return nil, fmt.Errorf("shards: %d is not a power of two from 1 to 256", cfg.Shards)
	}
	for _, name := range []string{"vtgate", "vttablet", "vtctldclient"} {
		if _, err := os.Stat(filepath.Join(cfg.Programs, name)); err != nil {
			return nil, fmt.Errorf("find Vitess's %s: %w; build it by make vitess-programs", name, err)
		}
	}
	etcd, err := findEtcd(ctx, cfg.Programs)
	if err != nil {
		return nil, err
	}
	dir, err := newDirectory()
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, dir: dir}
	if err := c.start(ctx, etcd); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, etcd string) error {
	if err := c.startEtcd(ctx, etcd); err != nil {
		return err
	}
	if err := c.makeTopology(ctx); err != nil {
		return err
	}
	// What is made by several at once is put in its place by index, so that Stop finds what there is.
	c.Shards = make([]*Shard, c.cfg.Shards)
	var shards errgroup.Group
	for i := range c.Shards {
		c.Shards[i] = &Shard{Name: shardName(i, c.cfg.Shards)}
		shards.Go(func() error { return c.startShard(ctx, i) })
	}
	if err := shards.Wait(); err != nil {
		return err
	}
	if err := c.control(ctx, "ApplySchema", "--sql", c.cfg.Schema, Keyspace); err != nil {
		return err
	}
	return c.startGate(ctx)
}

// Stop ends every process and removes all files. It may be called more than once.
func (c *Cluster) Stop() error {
	var err error
	if c.Gate != nil {
		err = errors.Join(err, c.Gate.Kill())
	}
	for _, s := range c.Shards {
		if s.Tablet != nil {
			err = errors.Join(err, s.Tablet.Kill())
		}
		if s.Server != nil {
			err = errors.Join(err, s.Server.Stop())
		}
	}
	if c.etcd != nil {
		err = errors.Join(err, c.etcd.Kill())
	}
	return errors.Join(err, c.dir.remove())
}

// DSN returns vtgate's DSN with the keyspace. It stays the same when vtgate is started again.
func (c *Cluster) DSN() string { return fmt.Sprintf("mq@tcp(127.0.0.1:%d)/%s", c.gatePort, Keyspace) }

// Dir returns the directory of the cluster, with a log of each process.
func (c *Cluster) Dir() string { return c.dir.path }

// Status returns the address of vtgate's status page; its counters are beside it, at /debug/vars and /metrics.
func (c *Cluster) Status() string { return fmt.Sprintf("http://127.0.0.1:%d/debug/status", c.gateWeb) }

// GateVars decodes vtgate's counters, the JSON of its /debug/vars, into v.
func (c *Cluster) GateVars(ctx context.Context, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/debug/vars", c.gateWeb), nil)
	if err != nil {
		return err
	}
	request.Close = true // no goroutine stays behind
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("vtgate's counters: %s", response.Status)
	}
	return json.NewDecoder(response.Body).Decode(v)
}

// shardName is the key range of the i-th of n shards.
func shardName(i, n int) string {
	if n == 1 {
		return "-"
	}
	bound := func(i int) string {
		if i == 0 || i == n {
			return ""
		}
		return fmt.Sprintf("%02x", i*256/n)
	}
	return bound(i) + "-" + bound(i+1)
}

func (c *Cluster) startEtcd(ctx context.Context, path string) (err error) {
	if c.etcd, err = c.dir.process("etcd", path); err != nil {
		return err
	}
	return c.etcd.startOnPorts(ctx, 2, func(ports []int) {
		c.etcdPort = ports[0]
		client, peer := "http://127.0.0.1:"+strconv.Itoa(ports[0]), "http://127.0.0.1:"+strconv.Itoa(ports[1])
		c.etcd.health = client + "/health"
		c.etcd.args = []string{
			"--data-dir=data-" + strconv.Itoa(ports[0]), "--name=etcd", "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		}
	})
}

func (c *Cluster) topology() []string {
	return []string{
		"--topo-implementation=etcd2", "--topo-global-root=" + globalRoot,
		"--topo-global-server-address=127.0.0.1:" + strconv.Itoa(c.etcdPort),
	}
}

// control runs vtctldclient in place of a vtctld.
func (c *Cluster) control(ctx context.Context, args ...string) error {
	cmd := c.dir.command(ctx, filepath.Join(c.cfg.Programs, "vtctldclient"), append(append(c.topology(), "--server=internal"), args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("vtctldclient %s: %w\n%s", args[0], err, out)
	}
	return nil
}

func (c *Cluster) makeTopology(ctx context.Context) error {
	for _, args := range [][]string{
		{"AddCellInfo", "--root=/vitess/" + cell, "--server-address=127.0.0.1:" + strconv.Itoa(c.etcdPort), cell},
		{"CreateKeyspace", "--durability-policy=none", "--sidecar-db-name=_vt", Keyspace},
		{"ApplyVSchema", "--vschema=" + c.cfg.VSchema, Keyspace},
	} {
		if err := c.control(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startShard(ctx context.Context, i int) error {
	s := c.Shards[i]
	var err error
	// A lock is given up before Vitess ends the transaction that waits for it, after 30 s.
	if s.Server, err = testdb.Start(ctx, "innodb-lock-wait-timeout=10"); err != nil {
		return err
	}
	server, err := createDatabase(ctx, s.Server.DSN())
	if err != nil {
		return err
	}
	args := append(c.topology(),
		fmt.Sprintf("--tablet-path=%s-%d", cell, firstUID+i), "--tablet-hostname=127.0.0.1",
		"--init-keyspace="+Keyspace, "--init-shard="+s.Name, "--init-tablet-type=replica", "--init-db-name-override="+Keyspace,
		"--unmanaged", "--db-host="+server.host, "--db-port="+server.port,
		// MariaDB does not know the default, a collation of MySQL 8, and would talk latin1.
		"--db-charset=utf8mb4_bin",
		"--bind-address=127.0.0.1", "--grpc-bind-address=127.0.0.1", "--service-map=grpc-queryservice,grpc-tabletmanager",
		"--health-check-interval=1s", "--enable-replication-reporter=false",
		// A vtgate that is killed leaves its transactions, and their locks, for that long; the default is 30 s.
		"--queryserver-config-transaction-timeout=10s",
		// Without them, errors and logs show the values of a statement, payloads among them.
		"--queryserver-config-terse-errors", "--sanitize-log-messages",
		// Above what the tests have open at once: a tablet has 20 transactions and 16 other statements by default.
		"--queryserver-config-transaction-cap=300", "--queryserver-config-pool-size=100")
	for _, role := range []string{"app", "appdebug", "allprivs", "dba", "filtered", "repl"} {
		args = append(args, "--db-"+role+"-user="+server.user, "--db-"+role+"-password="+server.password)
	}
	if s.Tablet, err = c.dir.process("vttablet"+s.Name, filepath.Join(c.cfg.Programs, "vttablet")); err != nil {
		return err
	}
	err = s.Tablet.startOnPorts(ctx, 2, func(ports []int) {
		s.web = ports[0]
		s.Tablet.health = s.Status()
		s.Tablet.args = append(slices.Clip(args), "--port="+strconv.Itoa(ports[0]), "--grpc-port="+strconv.Itoa(ports[1]))
	})
	if err != nil {
		return err
	}
	if err := c.control(ctx, "TabletExternallyReparented", fmt.Sprintf("%s-%d", cell, firstUID+i)); err != nil {
		return err
	}
	// From now on it serves as soon as it has started.
	s.Tablet.health = fmt.Sprintf("http://127.0.0.1:%d/healthz", s.web)
	return s.Tablet.awaitHealth(ctx)
}

func (c *Cluster) startGate(ctx context.Context) (err error) {
	if c.Gate, err = c.dir.process("vtgate", filepath.Join(c.cfg.Programs, "vtgate")); err != nil {
		return err
	}
	err = c.Gate.startOnPorts(ctx, 3, func(ports []int) {
		c.gatePort, c.gateWeb = ports[0], ports[1]
		c.Gate.health = fmt.Sprintf("http://127.0.0.1:%d/debug/health", ports[1])
		c.Gate.args = append(c.topology(),
			"--cell="+cell, "--cells-to-watch="+cell, "--tablet-types-to-wait=PRIMARY",
			"--mysql-server-bind-address=127.0.0.1", "--mysql-server-port="+strconv.Itoa(ports[0]), "--mysql-auth-server-impl=none",
			"--bind-address=127.0.0.1", "--port="+strconv.Itoa(ports[1]),
			"--grpc-bind-address=127.0.0.1", "--grpc-port="+strconv.Itoa(ports[2]), "--service-map=grpc-vtgateservice",
			"--transaction-mode=SINGLE", "--no-scatter")
	})
	if err != nil {
		return err
	}
	return awaitTables(ctx, c.DSN())
}
