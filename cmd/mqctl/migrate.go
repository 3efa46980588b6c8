package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend/mysql"
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
		SQL string `json:"sql"`
	}
)

func (a *app) migrateUp() *cobra.Command {
	return &cobra.Command{
		Use: "up", Short: "Bring the tables to the version of this mqctl",
		Long: "Bring the tables to the version of this mqctl. Nothing changes when they are there already, and any number\n" +
			"of processes may do it at once. --timeout does not apply: a change of a large table takes its time.",
		Example: "  MQ_DSN='mq:secret@tcp(127.0.0.1:3306)/queue' mqctl migrate up",
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			before, err := mysql.Status(ctx, s.db)
			if err != nil {
				return err
			}
			if err := mysql.Migrate(ctx, s.db); err != nil {
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

func (a *app) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Compare the tables with what this mqctl needs; changes nothing",
		Example: "  mqctl migrate status",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			status, err := mysql.Status(ctx, s.db)
			if err != nil {
				return err
			}
			return a.emit(schemaDoc{status.Current, status.Latest, append([]string{}, status.Pending...)}, func() error {
				pending := "none"
				if len(status.Pending) > 0 {
					pending = strings.Join(status.Pending, ", ")
				}
				return a.line("%v: version %d of %d; pending: %s", s.cfg.DSN, status.Current, status.Latest, pending)
			})
		}),
	}
}

func (a *app) migrateSQL() *cobra.Command {
	return &cobra.Command{
		Use: "sql", Short: "Print the statements that make the tables",
		Long: "Print the statements that make the tables, for migration tools of other makers. They record the version, so\n" +
			"that services accept the tables. It needs no configuration and no database.",
		Example: "  mqctl migrate sql > schema.sql",
		RunE: func(*cobra.Command, []string) error {
			a.running = true
			return a.emit(sqlDoc{mysql.Schema()}, func() error {
				_, err := io.WriteString(a.out, mysql.Schema())
				return err
			})
		},
	}
}

type validDoc struct {
	Configuration string `json:"configuration"`
	Database      string `json:"database"`
}

func (a *app) validate() *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "Check the configuration, and whether the database suits it",
		Long: "Check the configuration, and whether the database suits it: server, isolation, tables, packet size.\n" +
			"A service with the same configuration would start. A wrong configuration is exit code 2, an unsuitable\n" +
			"database 1.",
		Example: "  mqctl validate --config config/base.yaml,config/production.yaml",
		RunE: a.brief(nil, func(ctx context.Context, s *session) error {
			if err := s.queue.Verify(ctx); err != nil {
				return err
			}
			return a.emit(validDoc{"ok", s.cfg.DSN.String()}, func() error {
				return a.line("configuration: ok\ndatabase:      ok, %v", s.cfg.DSN)
			})
		}),
	}
}
