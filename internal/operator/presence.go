package operator

import (
	"context"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Presence tells whether there is anything of a tenant, or of one of its topics:
// whether a name is right, where a listing is empty.
type Presence struct {
	Messages bool
	Groups   bool // registered
	// Rest are rows of other kinds: watermarks, delivery states, leases and
	// heartbeats.
	Rest bool
}

// Any tells whether anything at all is there.
func (p Presence) Any() bool { return p.Messages || p.Groups || p.Rest }

// Presence tells what there is of a tenant on a topic, or with the topic "" on
// any. It counts nothing.
func (o *Operator) Presence(ctx context.Context, tenant tenants.ID, topic string) (Presence, error) {
	if err := o.check(backend.CheckTenant(tenant), unless(topic, backend.CheckTopic)); err != nil {
		return Presence{}, err
	}
	p, err := o.presence(ctx, tenant, topic)
	return p, wrap("look for anything", tenant, topic, err)
}

func (o *Operator) presence(ctx context.Context, tenant tenants.ID, topic string) (p Presence, err error) {
	topics := []string{topic}
	if topic == "" {
		if topics, err = o.topicNames(ctx, tenant); err != nil {
			return p, err
		}
	}
	for _, name := range topics {
		if p.Messages && p.Groups {
			break
		}
		if !p.Messages {
			n, _, err := readOne(ctx, o.db, newQuery(stmtCountMessages, string(tenant), name, 1), single[int])
			if err != nil {
				return p, err
			}
			p.Messages = n > 0
		}
		if !p.Groups {
			registered, err := o.registrations(ctx, o.db, tenant, name)
			if err != nil {
				return p, err
			}
			p.Groups = len(registered) > 0
		}
	}
	for _, name := range topics {
		marks, err := read(ctx, o.db, newQuery(stmtMarkKeys+keyPage, string(tenant), name, 1), single[string])
		if err != nil {
			return p, err
		}
		if p.Rest = len(marks) > 0; p.Rest {
			return p, nil
		}
	}
	for _, statement := range []string{stmtLeasePair, stmtStatePair, stmtBeatPair} {
		pairs, err := o.pairs(ctx, tenant, statement, Page{Topic: topic})
		if err != nil {
			return p, err
		}
		if p.Rest = len(pairs) > 0; p.Rest {
			return p, nil
		}
	}
	return p, nil
}
