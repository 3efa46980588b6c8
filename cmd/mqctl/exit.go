package main

import (
	"errors"
	"fmt"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
)

// Exit codes. rootLong and docs/mqctl.md tell them.
const (
	exitDone = iota
	exitFailed
	exitUsage
	exitNotFound
	exitRefused
)

// errRefused is what a person who does not say yes gets.
var errRefused = errors.New("the answer was not yes; nothing was changed")

// usageError is a mistake found before anything was touched.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error { return usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// partialError has come after something was done: whatever its cause, it is no
// error of usage.
type partialError struct{ error }

func (e partialError) Unwrap() error { return e.error }

func exitCode(err error) int {
	_, isUsage := errors.AsType[usageError](err)
	_, isPartial := errors.AsType[partialError](err)
	switch {
	case err == nil:
		return exitDone
	case isPartial:
		return exitFailed
	case errors.Is(err, errRefused):
		return exitRefused
	case errors.Is(err, backend.ErrNotFound):
		return exitNotFound
	// What the packages below refuse they refuse before any statement.
	case isUsage, errors.Is(err, backend.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

// report says what has gone wrong and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitDone
	}
	text := err.Error() + remedy(err)
	if a.json {
		_ = writeJSON(a.err, map[string]string{"error": text}) // nobody is left to be told
	} else {
		fmt.Fprintln(a.err, "mqctl:", printable(text))
	}
	return exitCode(err)
}

// remedy is what this tool can do about an error of the packages below, which do
// not know it.
func remedy(err error) string {
	const errNoSuchTable = 1146
	me, ok := errors.AsType[*driver.MySQLError](err)
	switch {
	case errors.Is(err, mysql.ErrSchemaMissing), errors.Is(err, mysql.ErrSchemaOlder), ok && me.Number == errNoSuchTable:
		return "; is it the right database? mqctl migrate up brings its tables to this version"
	case errors.Is(err, mysql.ErrSchemaNewer):
		return "; use the mqctl of the release that the services run"
	}
	return ""
}

// note tells a person something beside the result.
func (a *app) note(format string, args ...any) {
	if !a.json {
		fmt.Fprintln(a.err, "mqctl:", printable(fmt.Sprintf(format, args...)))
	}
}

func commandNames(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return strings.Join(names, ", ")
}
