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
	Remedy   string // "" for OK
}

// examination is one call of Doctor.
type examination struct {
	*Operator
	patience time.Duration // with transactions that are open
	findings []Finding
}

func (e *examination) ok(check, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Found: fmt.Sprintf(format, args...)})
}

func (e *examination) find(check string, s Severity, remedy, format string, args ...any) {
	e.findings = append(e.findings, Finding{check, s, fmt.Sprintf(format, args...), remedy})
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
// it finds in a fixed order, what is well included. It changes nothing.
func (o *Operator) Doctor(ctx context.Context, list []tenants.ID) []Finding {
	e := &examination{Operator: o, patience: maxTransaction}
	if err := o.check(); err != nil {
		e.find("settings", Bad, "set CountTo right", "%v", err)
		return e.findings
	}
	if !e.reach(ctx) {
		return e.findings
	}
	e.schema(ctx)
	e.settings(ctx)
	e.clock(ctx)
	e.replication(ctx)
	e.transactions(ctx)
	e.history(ctx)
	e.sizes(ctx)
	e.leases(ctx, list)
	e.groups(ctx, list)
	e.plans(ctx, list)
	return e.findings
}
