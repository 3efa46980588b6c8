package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// ErrGroupUnknown: a dead letter would be returned to a group that is not
// registered, where nobody would ever take it. It is wrapped by
// [*GroupUnknownError].
var ErrGroupUnknown = errors.New("the group is not registered")

// GroupUnknownError names the group that is missing, and where.
type GroupUnknownError struct {
	Tenant tenants.ID
	Destination
}

// Error says what to do about it.
func (e *GroupUnknownError) Error() string {
	return fmt.Sprintf("group %q has failed %s, and is not registered for topic %q of tenant %q: nobody would take them; "+
		"start a subscriber of it, or leave them where they are, or force it", e.Group, words(e.Messages, "dead letter"), e.Topic, e.Tenant)
}

// Unwrap returns [ErrGroupUnknown].
func (*GroupUnknownError) Unwrap() error { return ErrGroupUnknown }

// Destination is where dead letters go when they are redriven: to the group that
// failed them alone, on the topic where it did.
type Destination struct {
	Topic, Group string
	Messages     int
	Registered   bool // the group is, for the topic
}

// check returns a [*GroupUnknownError] unless the group is registered.
func (d Destination) check(tenant tenants.ID) error {
	if d.Registered {
		return nil
	}
	return &GroupUnknownError{tenant, d}
}

// Destinations tells where the dead letters of a topic would go, or those that a
// group has failed, by topic and group. It reads the whole topic.
func (o *Operator) Destinations(ctx context.Context, tenant tenants.ID, topic, group string) ([]Destination, error) {
	if err := o.check(backend.CheckTenant(tenant), backend.CheckTopic(topic), unless(group, backend.CheckGroup)); err != nil {
		return nil, err
	}
	q := newQuery(stmtDestinations, string(tenant), topic)
	if group != "" {
		q.add(ofFailed, group)
	}
	list, err := read(ctx, o.db, q.add(destinationsEnd), func(d *Destination) []any { return []any{&d.Topic, &d.Group, &d.Messages} })
	for i := range list {
		if err == nil {
			err = o.findGroup(ctx, tenant, &list[i])
		}
	}
	if err != nil {
		return nil, wrap("find out where the dead letters go", tenant, topic, err)
	}
	return list, nil
}

// CheckRedrive tells where one dead letter would go: call it before
// [mysql.Queue.Redrive], which does not look. It returns [ErrGroupUnknown] in a
// [*GroupUnknownError], with the destination as well, if nobody would take it
// there, and [backend.ErrNotFound] for a message that is not stored or is no dead
// letter.
func (o *Operator) CheckRedrive(ctx context.Context, tenant tenants.ID, topic, partitionKey, id string) (Destination, error) {
	if err := o.check(checkIdentity(tenant, topic, partitionKey, id)); err != nil {
		return Destination{}, err
	}
	d, found, err := readOne(ctx, o.db, newQuery(stmtDestination, string(tenant), topic, partitionKey, id),
		func(d *Destination) []any { return []any{&d.Topic, &d.Group} })
	switch {
	case err != nil:
	case !found:
		err = backend.ErrNotFound
	case d.Topic == "":
		err = fmt.Errorf("%w: the message is no dead letter", backend.ErrNotFound)
	default:
		d.Messages = 1
		if err = o.findGroup(ctx, tenant, &d); err == nil {
			err = d.check(tenant)
		}
	}
	if err != nil {
		return d, fmt.Errorf("redrive message %q of tenant %q, topic %q, partition key %q: %w", id, tenant, topic, partitionKey, err)
	}
	return d, nil
}

// findGroup fills in whether the group is registered.
func (o *Operator) findGroup(ctx context.Context, tenant tenants.ID, d *Destination) error {
	registered, err := o.registrations(ctx, o.db, tenant, d.Topic)
	d.Registered = isRegistered(registered, d.Group)
	return err
}
