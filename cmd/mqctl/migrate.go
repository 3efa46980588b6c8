package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/operator"
)

func (a *app) migrate() *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Make the tables, or see how they stand",
		Example: "  mqctl migrate up",
	}
	c.AddCommand(a.migrateUp(), a.migrateStatus(), a.migrateSQL())
	return c
}

type (
	migratedDoc struct {
		From int64 `json:"from"`
		To   int64 `json:"to"`
	}
	schemaDoc struct {
		Current int64    `json:"current"`
		Latest  int64    `json:"latest"`
		Pending []string `json:"pending"`
	}
	sqlDoc struct {
		SQL     string `json:"sql"`
		VSchema string `json:"vschema"` // "" without --vitess
	}
)

func (a *app) migrateUp() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Bring the tables to the version of this mqctl",
		Long: "Bring the tables to the version of this mqctl. Nothing changes when they are there already, and any number\n" +
			"of processes may do it at once. --timeout does not apply: a change of a large table takes its time.",
		Example: "  MQ_DSN='mq:secret@tcp(127.0.0.1:3306)/queue' mqctl migrate up",
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			if s.cfg.ExternalSchema {
				return usagef("mq.external_schema is true: another tool makes the tables, from what mqctl migrate sql prints; " +
					"on Vitess from that of mqctl migrate sql --vitess, the statements by ApplySchema and the VSchema by ApplyVSchema")
			}
			before, err := mysql.Status(ctx, s.db)
			if err != nil {
				return err
			}
			if err := mysql.Migrate(ctx, s.db); err != nil {
				return err
			}
			if err := s.verifyTables(ctx); err != nil {
				return err
			}
			return a.emit(migratedDoc{before.Current, before.Latest}, func() error {
				if before.Current == before.Latest {
					return a.line("the tables of %v are at version %d already", s.cfg.DSN, before.Latest)
				}
				return a.line("migrated %v from version %d to %d", s.cfg.DSN, before.Current, before.Latest)
			})
		}),
	}
}

// lostTable is a table that is not there though the version of all is recorded.
type lostTable struct{ error }

func (e lostTable) Unwrap() error { return e.error }

// verifyTables looks at tables of the version recorded, or of a newer one. What
// else does not suit is mqctl validate's to tell.
func (s *session) verifyTables(ctx context.Context) error {
	err := s.queue.Verify(ctx)
	switch {
	case errors.Is(err, mysql.ErrServerSettings):
		return nil
	case errors.Is(err, mysql.ErrSchemaMissing):
		return lostTable{err}
	}
	return err
}

func (a *app) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Compare the tables with what this mqctl needs; changes nothing",
		Long: "Compare the tables with what this mqctl needs; changes nothing. Migrations that are pending are no failure;\n" +
			"a version newer than this release, or a table that is missing from the version recorded, is exit code 1.",
		Example: "  mqctl migrate status",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			if s.cfg.ExternalSchema {
				return a.externalStatus(ctx, s)
			}
			status, err := mysql.Status(ctx, s.db)
			if err != nil {
				return err
			}
			err = a.emit(schemaDoc{status.Current, status.Latest, append([]string{}, status.Pending...)}, func() error {
				pending := "none"
				if len(status.Pending) > 0 {
					pending = strings.Join(status.Pending, ", ")
				}
				if status.Current > status.Latest {
					return a.line("%v: version %d, newer than this release, which knows %d", s.cfg.DSN, status.Current, status.Latest)
				}
				return a.line("%v: version %d of %d; pending: %s", s.cfg.DSN, status.Current, status.Latest, pending)
			})
			if err != nil || status.Current < status.Latest {
				return err
			}
			return s.verifyTables(ctx)
		}),
	}
}

// externalStatus looks at the tables themselves, as the services do.
func (a *app) externalStatus(ctx context.Context, s *session) error {
	if err := s.verifyTables(ctx); err != nil {
		return err
	}
	return a.emit(schemaDoc{mysql.SchemaVersion, mysql.SchemaVersion, []string{}}, func() error {
		return a.line("%v: no version is looked at (mq.external_schema); the tables have what version %d needs", s.cfg.DSN, mysql.SchemaVersion)
	})
}

func (a *app) migrateSQL() *cobra.Command {
	vitess := false
	c := &cobra.Command{
		Use: "sql", Short: "Print the statements that make the tables",
		Long: "Print the statements that make the tables, for migration tools of other makers. They record the version, so\n" +
			"that services accept the tables. With --vitess they record none, as a sharded keyspace has no place for it, and the\n" +
			"VSchema follows in comments (with --json, as a key of its own). It needs no configuration and no database.",
		Example: "  mqctl migrate sql > schema.sql",
		RunE: func(*cobra.Command, []string) error {
			a.running = true
			doc := sqlDoc{SQL: mysql.Schema()}
			if vitess {
				doc = sqlDoc{mysql.VitessSchema(), mysql.VSchema()}
			}
			return a.emit(doc, func() error {
				text := doc.SQL
				if vitess {
					text += "\n-- VSchema, for ApplyVSchema:\n-- " +
						strings.ReplaceAll(strings.TrimSuffix(doc.VSchema, "\n"), "\n", "\n-- ") + "\n"
				}
				_, err := io.WriteString(a.out, text)
				return err
			})
		},
	}
	c.Flags().BoolVar(&vitess, "vitess", false, "for a sharded keyspace: without the version, and with the VSchema")
	return c
}

type validDoc struct {
	Configuration string `json:"configuration"`
	Database      string `json:"database"`
}

func (a *app) validate() *cobra.Command {
	check := func() error {
		_, err := fromEnv()
		return err
	}
	return &cobra.Command{
		Use: "validate", Short: "Check the configuration, and whether the database suits it",
		Long: "Check the configuration, and whether the database suits it: server, isolation, tables, packet size,\n" +
			"and whether the user may write.\n" +
			"A service with the same configuration would start. A wrong configuration is exit code 2, an unsuitable\n" +
			"database 1.",
		Example: "  mqctl validate --config config/base.yaml,config/production.yaml",
		RunE: a.brief(check, func(ctx context.Context, s *session) error {
			if err := s.queue.Verify(ctx); err != nil {
				return err
			}
			for _, f := range s.Doctor(ctx, nil) {
				if f.Check == "privileges" && f.Severity != operator.OK {
					return fmt.Errorf("%s; %s", f.Found, f.Remedy)
				}
			}
			return a.emit(validDoc{"ok", s.cfg.DSN.String()}, func() error {
				return a.line("configuration: ok\ndatabase:      ok, %v", s.cfg.DSN)
			})
		}),
	}
}
