package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/tenantmq/tenantmq/tenants"
)

// Severity of a finding.
type Severity int

// Severities, in order.
const (
	OK   Severity = iota
	Warn          // it will be felt, or could not be looked at
	Bad           // the queue does not work, or somebody waits in vain
)

// String is the severity's name in small letters.
func (s Severity) String() string { return [...]string{"ok", "warn", "bad"}[s] }

// Finding is what one look has shown.
type Finding struct {
	Check    string // what was looked at; several findings may be of one check
	Severity Severity
	Found    string
	// Remedy says what to do, with complete commands of mqctl in backticks. "" for OK.
	Remedy string
}

// examination is one call of Doctor.
type examination struct {
	*Operator
	findings []Finding
	keyspace []string // its shards, on Vitess
	verified error    // what the queue says of the database
	known    survey   // the tenants' work

	server querier // what is looked at, and "" or the shard that it is
	shard  string

	patience        time.Duration // with transactions that are open
	lagAge          time.Duration // of messages, for a warning
	handlerPatience time.Duration // with a message that does not move
	maxHeads        int           // partitions looked at
}

func (e *examination) ok(check, format string, args ...any) {
	e.find(check, OK, "", format, args...)
}

func (e *examination) find(check string, s Severity, remedy, format string, args ...any) {
	found := fmt.Sprintf(format, args...)
	if e.shard != "" {
		found = fmt.Sprintf("shard %s: %s", e.shard, found)
	}
	e.findings = append(e.findings, Finding{check, s, found, remedy})
}

// judge is ok or not.
func (e *examination) judge(check string, fine bool, s Severity, remedy, format string, args ...any) {
	if fine {
		s, remedy = OK, ""
	}
	e.find(check, s, remedy, format, args...)
}

// blind tells what could not be looked at.
func (e *examination) blind(check string, err error, remedy string) {
	e.find(check, Warn, remedy, "could not be looked at: %v", err)
}

// Doctor looks at the server and at the work of some tenants, and returns what
// it finds in a fixed order, what is well included. It changes nothing. On Vitess
// it looks at the servers of all shards. Of the tenants' work it reads up to 30,000
// partitions, 10,000 a group, and for every topic up to 20,000 messages.
func (o *Operator) Doctor(ctx context.Context, list []tenants.ID) []Finding {
	e := &examination{
		Operator: o, patience: maxTransaction, lagAge: maxLagAge, handlerPatience: handlerPatience, maxHeads: maxHeads,
	}
	return e.run(ctx, list)
}

func (e *examination) run(ctx context.Context, list []tenants.ID) []Finding {
	if err := e.check(); err != nil {
		e.find("settings", Bad, "count to a number within the bounds", "%v", err)
		return e.findings
	}
	if !e.reach(ctx) {
		return e.findings
	}
	e.schema(ctx)
	e.eachServer(ctx, func(ctx context.Context) {
		e.settings(ctx)
		e.clock(ctx)
		e.replication(ctx)
		e.transactions(ctx)
		e.history(ctx)
		e.sizes(ctx)
	})
	e.privileges(ctx)
	e.leases(ctx, list)
	if e.survey(ctx, list) {
		e.groups()
		e.lag()
		e.heads(ctx)
		e.deadLetters(ctx)
		e.unread()
		e.redriven(ctx)
	}
	e.eachServer(ctx, func(ctx context.Context) { e.plans(ctx, list) })
	return e.findings
}
