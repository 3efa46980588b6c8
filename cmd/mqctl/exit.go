package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	driver "github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/mysql"
	"github.com/tenantmq/tenantmq/internal/operator"
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
var errRefused = errors.New("nothing was changed")

// usageError is a mistake found before anything was touched.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error { return usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// partialError has come after something was done: whatever its cause, it is no
// error of usage.
type partialError struct{ error }

func (e partialError) Unwrap() error { return e.error }

// interrupted is the error of a command that Ctrl-C or SIGTERM has ended. How far
// it got is in what the packages below say; that the context was cancelled, they
// say at its end.
func interrupted(err error) error {
	text := err.Error()
	for _, cause := range []string{context.Canceled.Error(), "interrupt signal received", "terminated signal received"} {
		if text = strings.TrimSuffix(text, cause); text == "" {
			return partialError{errors.New("interrupted; what was done stays done")}
		}
		text = strings.TrimSuffix(text, ": ")
	}
	return partialError{fmt.Errorf("interrupted; what was done stays done: %s", text)}
}

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
	case errors.Is(err, backend.ErrNotFound), errors.Is(err, operator.ErrGroupUnknown):
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
	_, isUnset := errors.AsType[*mysql.VitessError](err)
	_, isLost := errors.AsType[lostTable](err)
	switch {
	case isLost:
		return "; what mqctl migrate sql prints makes it again, empty"
	case errors.Is(err, operator.ErrGroupUnknown):
		return " with --force"
	case isUnset:
		return "" // it has its own
	case errors.Is(err, mysql.ErrSchemaMissing), errors.Is(err, mysql.ErrSchemaOlder), ok && me.Number == errNoSuchTable:
		return "; is it the right database? mqctl migrate up brings its tables to this version, or where mq.external_schema is true, what mqctl migrate sql prints"
	case errors.Is(err, mysql.ErrSchemaNewer):
		return "; use the mqctl of the release that the services run"
	}
	return ""
}

// note tells something beside the result, on standard error.
func (a *app) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.json {
		_ = writeJSON(a.err, map[string]string{"note": text}) // nobody is left to be told
		return
	}
	fmt.Fprintln(a.err, "mqctl:", printable(text))
}

func commandNames(c *cobra.Command) string {
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return strings.Join(names, ", ")
}
