// Package landing is what submitqueue and runway say to each other.
package landing

import (
	"fmt"
	"regexp"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

const (
	// MergeTopic carries a [Merge] to runway. Partition key: the queue, so that
	// one change of a queue is merged at a time.
	MergeTopic = "merge"
	// SignalTopic carries a [Signal] back. Partition key: the change.
	SignalTopic = "merge_signal"
)

// Merge asks for a change to be merged into its queue's target.
type Merge struct {
	Request string `json:"request"` // identifies the request across both services
	Change  string `json:"change"`
}

// Signal answers a [Merge].
type Signal struct {
	Change string `json:"change"`
	Landed bool   `json:"landed"` // false: conflict
	Detail string `json:"detail"` // the commit that holds the change, or what is in conflict
}

// Tenant is the wiring boundary: the business name of a queue is the queue's
// tenant, as it is. Nothing else in these services converts one to the other.
func Tenant(queue string) tenants.ID { return tenants.ID(queue) }

// Queue is the other direction.
func Queue(tenant tenants.ID) string { return string(tenant) }

// MaxChange bounds the name of a change, in bytes.
const MaxChange = 200

// No "..", which would lead out of a queue's changes, and no "@", which
// separates change and queue in the id of a request.
var changeName = regexp.MustCompile(`^[\w-]+([./][\w-]+)*$`)

// CheckChange returns a [backend.FieldError] for what is no name of a change.
func CheckChange(name string) error {
	if len(name) > MaxChange || !changeName.MatchString(name) {
		return &backend.FieldError{
			Field: "change", Value: fmt.Sprintf("%.40q", name),
			Rule: fmt.Sprintf("want a branch's name of 1 to %d letters, digits, _ and -, with single . or / between", MaxChange),
		}
	}
	return nil
}
