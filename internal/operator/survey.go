package operator

import (
	"context"
	"fmt"

	"github.com/tenantmq/tenantmq/tenants"
)

// survey is what several looks at the tenants' work need to know.
type survey struct {
	groups []Group
	topics []topicSurvey
}

// topicSurvey is a topic that has messages.
type topicSurvey struct {
	tenant tenants.ID
	topic  string
	groups []registration
	dead   bool // it holds dead letters
}

// survey looks at the tenants one by one, and tells whether it could.
func (e *examination) survey(ctx context.Context, list []tenants.ID) bool {
	const check = "groups"
	for _, tenant := range list {
		groups, err := e.Groups(ctx, tenant, "")
		if err == nil {
			e.known.groups = append(e.known.groups, groups...)
			err = e.surveyTopics(ctx, tenant)
		}
		if err != nil {
			e.blind(check, err, "see the check of the database")
			return false
		}
	}
	return true
}

func (e *examination) surveyTopics(ctx context.Context, tenant tenants.ID) error {
	names, err := e.topicNames(ctx, tenant)
	if err != nil {
		return wrap("list the topics", tenant, "", err)
	}
	for _, name := range names {
		n, _, err := readOne(ctx, e.db, newQuery(stmtCountMessages, string(tenant), name, 1), single[int])
		if err != nil {
			return wrap("look for messages", tenant, name, err)
		}
		if n == 0 {
			continue
		}
		t := topicSurvey{tenant: tenant, topic: name}
		if t.groups, err = e.registrations(ctx, e.db, tenant, name); err != nil {
			return wrap("list the groups", tenant, name, err)
		}
		if t.dead, err = e.hasDead(ctx, tenant, name); err != nil {
			return err
		}
		e.known.topics = append(e.known.topics, t)
	}
	return nil
}

// maxFindings bounds those of a check that looks at many tenants.
const maxFindings = 50

// several are the findings of such a check.
type several struct {
	*examination
	check string
	n     int
}

func (s *several) find(severity Severity, remedy, format string, args ...any) {
	if s.n++; s.n <= maxFindings {
		s.examination.find(s.check, severity, remedy, format, args...)
	}
}

// end tells what the findings do not.
func (s *several) end(fine string) {
	switch {
	case s.n == 0:
		s.ok(s.check, "%s", fine)
	case s.n > maxFindings:
		s.examination.find(s.check, Warn, "deal with these, then look again", "%s", fmt.Sprintf("there are %d more", s.n-maxFindings))
	}
}
