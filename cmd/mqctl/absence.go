package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/internal/operator"
	"github.com/tenantmq/tenantmq/tenants"
)

// topicNames are a tenant's topics that have messages or groups.
func (s *session) topicNames(ctx context.Context, id tenants.ID) ([]string, error) {
	names := operator.New(s.db, s.queue)
	names.CountTo = 1 // what they hold does not matter
	topics, err := names.Topics(ctx, id)
	list := make([]string, len(topics))
	for i, t := range topics {
		list[i] = t.Topic
	}
	return list, err
}

// absent says which part of a target's tenant, topic and group, as far as they
// are given, has nothing stored, or "". A dead-letter topic is there while the
// topic is that it belongs to.
func (s *session) absent(ctx context.Context, t *target) (string, error) {
	found, err := s.Presence(ctx, t.tenantID(), "")
	if err != nil {
		return "", err
	}
	if !found.Any() {
		return fmt.Sprintf("tenant %s has nothing stored, neither messages nor groups; is the name right?", quote(t.tenant)), nil
	}
	if t.topic == "" {
		return "", nil
	}
	topics, err := s.topicNames(ctx, t.tenantID())
	if err != nil {
		return "", err
	}
	belongs := slices.ContainsFunc(suffixes(s), func(suffix string) bool {
		topic, ok := strings.CutSuffix(t.topic, suffix)
		return ok && slices.Contains(topics, topic)
	})
	if !belongs && !slices.Contains(topics, t.topic) {
		return fmt.Sprintf("tenant %s has no topic %s; it has %s", quote(t.tenant), quote(t.topic), some(topics)), nil
	}
	if t.group == "" {
		return "", nil
	}
	groups, err := s.groupsOf(ctx, t)
	if err != nil || slices.ContainsFunc(groups, func(g groupAt) bool { return g.name == t.group }) {
		return "", err
	}
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = g.name
	}
	return fmt.Sprintf("topic %s of tenant %s has no group %s; it has %s", quote(t.topic), quote(t.tenant), quote(t.group), some(names)), nil
}

// notFound is the error of what acts on a target that is not there, and nil for
// one that is.
func (s *session) notFound(ctx context.Context, t *target) error {
	text, err := s.absent(ctx, t)
	if err == nil && text != "" {
		err = fmt.Errorf("%s: %w", text, backend.ErrNotFound)
	}
	return err
}

// noteAbsent tells somebody who looks at a target that is not there.
func (a *app) noteAbsent(ctx context.Context, s *session, t *target) error {
	text, err := s.absent(ctx, t)
	if err == nil && text != "" {
		a.note("%s", text)
	}
	return err
}

// some shows the first of several names.
func some(names []string) string {
	const most = 5
	if len(names) == 0 {
		return "none"
	}
	shown := make([]string, min(len(names), most))
	for i := range shown {
		shown[i] = quote(names[i])
	}
	if more := len(names) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// groupAt is a group registered for a topic.
type groupAt struct {
	name  string
	start uint64 // its position in partitions without a watermark
}

// groupsOf are the groups registered for a target's topic, by name.
func (s *session) groupsOf(ctx context.Context, t *target) ([]groupAt, error) {
	found, err := s.db.QueryContext(ctx, stmtGroups, t.tenant, t.topic)
	if err != nil {
		return nil, fmt.Errorf("list the groups of %v: %w", t, err)
	}
	defer found.Close()
	var list []groupAt
	for found.Next() {
		var g groupAt
		if err := found.Scan(&g.name, &g.start); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, found.Err()
}
