package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/fx"         //nolint:depguard // mqfx loads a configuration for Fx only; this application is never started
	"go.uber.org/fx/fxevent" //nolint:depguard // as above
	"go.uber.org/zap"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/tenants"
)

// closeTimeout bounds the end of a session, which has nothing to wait for.
const closeTimeout = 5 * time.Second

// session is a connection to the queue, for one command.
type session struct {
	cfg   mqfx.Config
	db    *sql.DB
	queue *mysql.Queue
	*operator.Operator
}

// brief makes a command of what is done within the timeout. check comes before
// the configuration is read and anything is connected to; it may be nil.
func (a *app) brief(check func() error, do func(context.Context, *session) error) func(*cobra.Command, []string) error {
	return a.lasting(check, func(ctx context.Context, s *session) error {
		return a.within(ctx, func(ctx context.Context) error { return do(ctx, s) })
	})
}

// lasting is brief for what asks people, or takes as long as it takes.
func (a *app) lasting(check func() error, do func(context.Context, *session) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		a.running, a.command = true, cmd
		if a.timeout <= 0 {
			return usagef("--timeout %v: must be above 0, such as %v", a.timeout, defaultTimeout)
		}
		if check != nil {
			if err := check(); err != nil {
				return usage(err)
			}
		}
		if f := cmd.Flags().Lookup("tenant"); f != nil && f.Changed {
			if err := a.noteUnlisted(f.Value.String()); err != nil {
				return usage(err)
			}
		}
		s, err := open()
		if err != nil {
			return usage(err)
		}
		defer func() { err = errors.Join(err, s.close()) }()
		return do(cmd.Context(), s)
	}
}

// within bounds a part of a command.
func (a *app) within(ctx context.Context, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return fmt.Errorf("%w; --timeout %v is over: allow more, or ask mqctl doctor what the database is at", err, a.timeout)
	}
	return err
}

// noteUnlisted warns of what may be a misspelt tenant, whose listings are empty.
// It is no error: a tenant that left the list may have left messages. A list that
// the services would refuse is one.
func (a *app) noteUnlisted(shown string) error {
	set, err := fromEnv()
	if tenant, _ := unquote(shown); err == nil && set.Len() > 0 && !set.Contains(tenants.ID(tenant)) {
		a.note("tenant %s is not in %s (%v)", shown, tenants.EnvVar, set)
	}
	return err
}

// open does no I/O beyond reading the configuration.
func open() (*session, error) {
	cfg, err := loadConfig()
	if err != nil {
		return nil, err
	}
	options := []mysql.OpenOption{mysql.LogTo(zap.NewNop())}
	if cfg.ServerIsolation {
		options = append(options, mysql.ServerIsolation())
	}
	if cfg.TLSCAFile != "" {
		options = append(options, mysql.CAFile(cfg.TLSCAFile))
	}
	db, err := mysql.Open(string(cfg.DSN), options...)
	if err != nil {
		return nil, err
	}
	queue, err := mysql.NewQueue(mysql.Params{DB: db, Config: mysql.Config{
		MaxPayload: cfg.Publish.MaxPayload, MaxMetadata: cfg.Publish.MaxMetadata,
		MaxBatchRows: cfg.Publish.MaxBatchRows, MaxBatchBytes: cfg.Publish.MaxBatchBytes, PublishTimeout: cfg.Publish.Timeout,
		GroupRetention: cfg.GroupRetention, ExternalSchema: cfg.ExternalSchema,
	}})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &session{cfg: cfg, db: db, queue: queue, Operator: operator.New(db, queue)}
	s.MaxPayload = cfg.Publish.MaxPayload
	return s, nil
}

func (s *session) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(s.queue.Close(ctx), s.db.Close())
}

// loadConfig reads what a service in this place would read.
func loadConfig() (mqfx.Config, error) {
	var cfg mqfx.Config
	var cause firstFailure
	app := fx.New(
		fx.WithLogger(func() fxevent.Logger { return &cause }),
		mqfx.Module, mqfx.WithTenants(tenants.Set{}), fx.Populate(&cfg))
	switch err := app.Err(); {
	case cause.err != nil:
		return cfg, ourFlag(cause.err)
	case err != nil:
		return cfg, ourFlag(err)
	case cfg.Backend != mqfx.BackendMySQL:
		return cfg, fmt.Errorf("mq.backend is %q, which keeps messages in the process of the service: mqctl works on the database of %q", cfg.Backend, mqfx.BackendMySQL)
	case cfg.DSN == "":
		return cfg, fmt.Errorf("mq.dsn is empty: set it, mq.dsn_file or %s to user:password@tcp(host:3306)/database, in the files of --config or %s", mqfx.EnvDSN, mqfx.EnvConfig)
	}
	return cfg, nil
}

var mqfxFlag = regexp.MustCompile(`(^| )-config\b`)

// ourFlag names the flag as it is here: mqfx takes it with one dash as well.
func ourFlag(err error) error {
	return errors.New(mqfxFlag.ReplaceAllString(err.Error(), "$1--config"))
}

// firstFailure keeps the error of the constructor that failed, without Fx's
// account of who wanted it.
type firstFailure struct{ err error }

func (f *firstFailure) LogEvent(e fxevent.Event) {
	if run, ok := e.(*fxevent.Run); ok && run.Err != nil && f.err == nil {
		f.err = errors.Unwrap(run.Err)
	}
}

// fromEnv are the tenants of MQ_TENANTS, none if that is not set.
func fromEnv() (tenants.Set, error) {
	if os.Getenv(tenants.EnvVar) == "" {
		return tenants.Set{}, nil
	}
	return tenants.FromEnv()
}

// listed are the tenants that --all-tenants means.
func listed() ([]tenants.ID, error) {
	set, err := fromEnv()
	if err == nil && set.Len() == 0 {
		err = fmt.Errorf("--all-tenants means those of %s, which is not set: set it to the list of the services, or name one by --tenant", tenants.EnvVar)
	}
	return set.IDs(), err
}
