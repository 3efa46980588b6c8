package operator

import (
	"context"
	"slices"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// Topic is what a tenant has stored under one.
type Topic struct {
	Tenant     tenants.ID
	Topic      string
	Messages   Count
	Partitions Count // with messages
	Groups     int   // registered
}

// Topics lists the topics of a tenant that have messages or groups, by name.
func (o *Operator) Topics(ctx context.Context, tenant tenants.ID) ([]Topic, error) {
	if err := o.check(backend.CheckTenant(tenant)); err != nil {
		return nil, err
	}
	names, err := o.topicNames(ctx, tenant)
	if err != nil {
		return nil, wrap("list the topics", tenant, "", err)
	}
	list := make([]Topic, len(names))
	for i, name := range names {
		t := Topic{Tenant: tenant, Topic: name}
		if t.Messages, err = o.countMessages(ctx, tenant, name, o.countTo()); err != nil {
			return nil, wrap("count the messages", tenant, name, err)
		}
		if t.Partitions, err = o.countPartitions(ctx, tenant, name, t.Messages); err != nil {
			return nil, wrap("count the partitions", tenant, name, err)
		}
		groups, err := o.registrations(ctx, o.db, tenant, name)
		if err != nil {
			return nil, wrap("list the groups", tenant, name, err)
		}
		t.Groups = len(groups)
		list[i] = t
	}
	return list, nil
}

// topicNames steps through the messages and the registrations. The order is that
// of Go, since the database sorts some names otherwise: those that begin alike
// and go on with control characters.
func (o *Operator) topicNames(ctx context.Context, tenant tenants.ID) ([]string, error) {
	var names []string
	for _, statement := range []string{stmtMessageTopic, stmtGroupTopic} {
		for last := ""; ; {
			q := newQuery(statement, string(tenant))
			if last != "" {
				q.add(topicBehind, last)
			}
			name, found, err := readOne(ctx, o.db, q.add(nextTopic), single[string])
			if err != nil {
				return nil, err
			}
			if !found {
				break
			}
			last = name
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// topicsOf are the topics a page wants, from its cursor on.
func (o *Operator) topicsOf(ctx context.Context, tenant tenants.ID, p Page) ([]string, error) {
	if p.Topic != "" {
		return []string{p.Topic}, nil
	}
	names, err := o.topicNames(ctx, tenant)
	if err != nil {
		return nil, wrap("list the topics", tenant, "", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name < p.After.Topic }), nil
}

func (o *Operator) countMessages(ctx context.Context, tenant tenants.ID, topic string, bound int) (Count, error) {
	n, _, err := readOne(ctx, o.db, newQuery(stmtCountMessages, string(tenant), topic, bound+1), single[int])
	return count(n, bound), err
}

// countPartitions looks at pages of index entries. A page of which most belong
// to one partition costs little more than the seek behind it.
func (o *Operator) countPartitions(ctx context.Context, tenant tenants.ID, topic string, messages Count) (Count, error) {
	const least, most = 128, 4_096
	type page struct {
		keys, entries int
		last          string
	}
	bound, n, size := o.countTo(), 0, least
	if !messages.AtLeast {
		size = messages.N + 1 // all at once
	}
	for last := ""; n <= bound; {
		q := newQuery(stmtCountKeys+stmtKeys, string(tenant), topic)
		if last != "" {
			q.add(keyBehind, last)
		}
		got, _, err := readOne(ctx, o.db, q.add(keyPage, size).add(countKeysEnd), func(p *page) []any { return []any{&p.keys, &p.entries, &p.last} })
		if err != nil {
			return Count{}, err
		}
		n += got.keys
		if got.entries < size {
			break
		}
		last = got.last
		if got.keys > size/16 {
			size = min(2*size, most, max(bound-n+1, 1)*2)
		} else {
			size = least
		}
	}
	return count(n, bound), nil
}
