package operator

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/tenantmq/tenantmq/tenants"
)

// sample is a statement of a listing, with the index meant for it.
type sample struct {
	name, index string
	*query
}

// samples are the statements of the listings for a topic and group.
func samples(tenant tenants.ID, topic, group string) []sample {
	id, key := string(tenant), []string{"a", "b"}
	return []sample{
		{"next topic", "PRIMARY", newQuery(stmtMessageTopic+topicBehind+nextTopic, id, topic)},
		{"next topic of groups", "PRIMARY", newQuery(stmtGroupTopic+topicBehind+nextTopic, id, topic)},
		{"groups of a topic", "PRIMARY", newQuery(stmtRegistrations, id, topic)},
		{"count of messages", "uq_message", newQuery(stmtCountMessages, id, topic, 1_000)},
		{"partitions", "uq_message", newQuery(stmtKeys+keyPage, id, topic, 1_000)},
		{"next partitions", "uq_message", newQuery(stmtKeys+keyBehind+keyPage, id, topic, "a", 1_000)},
		{"pending messages", "PRIMARY", newQuery(stmtPending, 0, group, id, topic, "a", 1, group, 1_000)},
		{"lag", "PRIMARY", newQuery(stmtLag, group, group, id, topic, 0, group)},
		{"watermarks", "PRIMARY", newQuery(stmtMarks, id, topic, group).in(key)},
		{"next group with leases", "PRIMARY", newQuery(stmtLeasePair+pairBehind+nextPair, id, group, group, topic)},
		{"next group with states", "PRIMARY", newQuery(stmtStatePair+pairBehind+nextPair, id, group, group, topic)},
		{"next group with subscribers", "PRIMARY", newQuery(stmtBeatPair+pairBehind+nextPair, id, group, group, topic)},
		{"leases", "PRIMARY", newQuery(stmtLeases+keyBehind+keyPage, id, group, topic, "a", 100)},
		{"leases of partitions", "PRIMARY", newQuery(stmtLeases+keyIn, id, group, topic).in(key)},
		{"count of leases", "PRIMARY", newQuery(stmtCountLeases+ifHeld+countLeasesEnd, id, group, topic, 1_000)},
		{"leases by owner", "PRIMARY", newQuery(stmtOwners, id, group, topic, 1_000)},
		{"first message not settled", "PRIMARY", newQuery(stmtHead, 0, group, id, topic, "a", 1, group)},
		{"messages for one group", "PRIMARY", newQuery(stmtTargets, id, topic, 1_000)},
		{"moves of watermarks", "PRIMARY", newQuery(stmtMarkAges, id, topic, group).in(key)},
		{"subscribers", "PRIMARY", newQuery(stmtSubscribers+nameBehind+namePage, id, group, topic, "a", 100)},
		{"live subscribers", "PRIMARY", newQuery(stmtCountAlive, id, group, topic)},
		{"heads of dead letters", "PRIMARY", newQuery(stmtHasDead, id, topic, deadHeads)},
		{"dead letters", "PRIMARY", newQuery(stmtDead+deadBehind+deadPage, id, topic, "a", "a", 1, 100)},
		{"message", "uq_message", newQuery(stmtMessage, id, topic, "a", "m")},
		{"delivery state", "PRIMARY", newQuery(stmtState, id, group, topic, "a", 1)},
	}
}

// step is a line of an execution plan.
type step struct{ table, access, key, extra string }

func explain(ctx context.Context, db querier, q *query) ([]step, error) {
	rows, err := db.QueryContext(ctx, "EXPLAIN "+q.text.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var steps []step
	for rows.Next() {
		values := make(map[string]*sql.Null[string], len(columns))
		dest := make([]any, len(columns))
		for i, c := range columns {
			values[c] = new(sql.Null[string])
			dest[i] = values[c]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		get := func(c string) string {
			if v := values[c]; v != nil {
				return v.V
			}
			return ""
		}
		steps = append(steps, step{get("table"), get("type"), get("key"), get("Extra")})
	}
	return steps, rows.Err()
}

// problem says what is wrong with a plan, or "".
func (s sample) problem(plan []step) string {
	for _, p := range plan {
		switch {
		case p.table == "" || strings.HasPrefix(p.table, "<"): // constant, or what another step has read
		case p.access == "ALL" || p.access == "index":
			return "it scans " + p.table
		case p.key != s.index:
			return fmt.Sprintf("it goes by the index %q, not by %s", p.key, s.index)
		case strings.Contains(p.extra, "filesort"):
			return "it sorts rows of " + p.table
		}
	}
	return ""
}

// plans asks the server how it would run the statements of the listings, which
// go by the same indexes as those of the services.
func (e *examination) plans(ctx context.Context, list []tenants.ID) {
	const check = "plans"
	tenant, topic, group := tenants.ID("-"), "-", "-"
	for _, id := range list { // any that exists: plans for what does not are always good
		if name, found, err := readOne(ctx, e.server, newQuery(stmtMessageTopic+nextTopic, string(id)), single[string]); err == nil && found {
			tenant, topic = id, name
			if groups, err := e.registrations(ctx, e.server, id, topic); err == nil && len(groups) > 0 {
				group = groups[0].group
			}
			break
		}
	}
	n, fine := 0, 0
	for _, s := range samples(tenant, topic, group) {
		plan, err := explain(ctx, e.server, s.query)
		if err != nil {
			e.blind(check, fmt.Errorf("%s: %w", s.name, err), explainRemedy(err))
			return
		}
		if problem := s.problem(plan); problem != "" {
			n++
			e.find(check, Bad, "ANALYZE TABLE queue_messages, queue_delivery_state, queue_offsets, queue_partition_leases; and compare the indexes with those of `mqctl migrate sql`",
				"the statement for %s: %s", s.name, problem)
			continue
		}
		fine++
	}
	e.judge(check, n == 0, Warn, "see the others", "%d of %d statements go by the index meant for them", fine, fine+n)
}

func explainRemedy(err error) string {
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == errNoSuchTable {
		return "see the check of the schema"
	}
	return "see the check of the database"
}
