package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tenantmq/tenantmq/examples/internal/landing"
)

// account is what became of one queue's requests.
type account struct {
	queue    string
	sent     int
	accepted int
	Outcome
	landed  []string        // changes
	latency []time.Duration // from accepted to landed, ascending
}

// accounts asks submitqueue for every request.
func accounts(ctx context.Context, submitqueue *client, plan Plan) ([]account, error) {
	var list []account
	for _, queue := range plan.Queues {
		a := account{queue: queue}
		for _, c := range plan.Changes {
			if c.Queue == queue {
				a.sent++
			}
		}
		const page = 1000
		for after, more := "", true; more; {
			var l listing
			path := fmt.Sprintf("/queues/%s/requests?limit=%d&after=%s", url.PathEscape(queue), page, url.QueryEscape(after))
			if err := submitqueue.read(ctx, path, &l); err != nil {
				return nil, err
			}
			for _, r := range l.Requests {
				a.accepted++
				switch r.State {
				case "landed":
					a.Landed++
					a.landed = append(a.landed, r.Change)
					a.latency = append(a.latency, time.Duration(r.History[len(r.History)-1].At-r.History[0].At)*time.Millisecond)
				case "conflicted":
					a.Conflicted++
				case "check_failed":
					a.CheckFailed++
				case "dead_lettered":
					a.DeadLettered++
				}
				after = r.Change
			}
			more = len(l.Requests) == page
		}
		slices.Sort(a.latency)
		list = append(list, a)
	}
	return list, nil
}

// percentile of latencies in ascending order: the smallest that is not below p
// percent of them.
func percentile(latency []time.Duration, p int) time.Duration {
	if len(latency) == 0 {
		return 0
	}
	return latency[(len(latency)*p+99)/100-1]
}

func printTable(list []account) {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header, t.Style().Format.Footer = text.FormatDefault, text.FormatDefault
	t.AppendHeader(table.Row{"tenant", "sent", "accepted", "landed", "conflicted", "check failed", "dead-lettered", "p50", "p99"})
	var all account
	row := func(name string, a account) table.Row {
		return table.Row{
			name, a.sent, a.accepted, a.Landed, a.Conflicted, a.CheckFailed, a.DeadLettered,
			percentile(a.latency, 50).Round(time.Millisecond), percentile(a.latency, 99).Round(time.Millisecond),
		}
	}
	for _, a := range list {
		t.AppendRow(row(a.queue, a))
		all.sent, all.accepted = all.sent+a.sent, all.accepted+a.accepted
		all.Landed, all.Conflicted = all.Landed+a.Landed, all.Conflicted+a.Conflicted
		all.CheckFailed, all.DeadLettered = all.CheckFailed+a.CheckFailed, all.DeadLettered+a.DeadLettered
		all.latency = append(all.latency, a.latency...)
	}
	slices.Sort(all.latency)
	t.AppendFooter(row("all", all))
	t.Render()
	fmt.Println("p50 and p99 are from accepted to landed.")
}

// balance names every queue whose requests are not what the plan says.
func balance(list []account, plan Plan) error {
	var errs []error
	want := plan.want()
	for _, a := range list {
		if a.accepted != a.sent || a.Outcome != want[a.queue] {
			errs = append(errs, fmt.Errorf("queue %s: of %d changes sent %d were accepted and became %+v, want %+v",
				a.queue, a.sent, a.accepted, a.Outcome, want[a.queue]))
		}
	}
	return errors.Join(errs...)
}

// prove compares each target's history with what landed: every landed change was
// merged, once, and nothing else was.
func prove(ctx context.Context, repository string, list []account) error {
	branches, err := gitLines(ctx, repository, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/change")
	if err != nil {
		return err
	}
	commits := make(map[string]string) // by ref
	for _, line := range branches {
		id, name, _ := strings.Cut(line, " ")
		commits[name] = id
	}
	merges := 0
	for _, a := range list {
		// The second parent of each merge on the way from the target's first commit.
		lines, err := gitLines(ctx, repository, "log", "--first-parent", "--format=%P", ref(targetRef, a.queue, ""))
		if err != nil {
			return err
		}
		merged := make(map[string]int) // by commit
		for _, line := range lines[:len(lines)-1] {
			parents := strings.Fields(line)
			merged[parents[len(parents)-1]]++
		}
		for _, change := range a.landed {
			commit := commits[ref(changeRef, a.queue, change)]
			if merged[commit] != 1 {
				return fmt.Errorf("git log: change %s landed on %s but was merged %d times", change, a.queue, merged[commit])
			}
			delete(merged, commit)
		}
		if len(merged) > 0 {
			return fmt.Errorf("git log: %s holds commits that did not land: %s", a.queue, strings.Join(slices.Sorted(maps.Keys(merged)), ", "))
		}
		merges += a.Landed
	}
	say("git log: %d merges in the targets' histories, each of one landed change, and no other", merges)
	return nil
}

func gitLines(ctx context.Context, repository string, args ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir=" + repository}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", args[0], err)
	}
	// The first commit has no parent and so an empty last line.
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), nil
}

// Rows of drained partitions, tenant by tenant: on Vitess no statement may go to
// every shard. The rows of queue_offsets without a partition key register groups
// and stay.
var leftovers = map[string]string{
	"queue_messages":              "SELECT tenant, topic, partition_key, id FROM queue_messages WHERE tenant = ? LIMIT 5",
	"queue_delivery_state":        "SELECT tenant, topic, partition_key, message_offset FROM queue_delivery_state WHERE tenant = ? LIMIT 5",
	"queue_offsets":               "SELECT tenant, topic, partition_key, consumer_group FROM queue_offsets WHERE tenant = ? AND partition_key <> '' LIMIT 5",
	"queue_partition_leases":      "SELECT tenant, topic, partition_key, leased_by FROM queue_partition_leases WHERE tenant = ? LIMIT 5",
	"queue_subscriber_heartbeats": "SELECT tenant, topic, consumer_group, subscriber_name FROM queue_subscriber_heartbeats WHERE tenant = ? LIMIT 5",
}

func everyTable() []string { return slices.Sorted(maps.Keys(leftovers)) }

// drained returns an error that names rows which the queue has left behind.
func drained(ctx context.Context, db *database, queues []string, tables ...string) error {
	var errs []error
	for _, name := range tables {
		for _, queue := range queues {
			errs = append(errs, empty(ctx, db, name, queue))
		}
	}
	return errors.Join(errs...)
}

func empty(ctx context.Context, db *database, name, queue string) error {
	rows, err := db.QueryContext(ctx, leftovers[name], string(landing.Tenant(queue)))
	if err != nil {
		return err
	}
	defer rows.Close()
	var errs []error
	for rows.Next() {
		var row [4]string
		if err := rows.Scan(&row[0], &row[1], &row[2], &row[3]); err != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("%s still holds %q", name, row))
	}
	return errors.Join(append(errs, rows.Err())...)
}

// waitDrained gives the services time to give back what they hold of partitions
// without work.
func waitDrained(ctx context.Context, db *database, queues []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*leaseDuration)
	defer cancel()
	for {
		err := drained(ctx, db, queues, "queue_messages", "queue_delivery_state", "queue_offsets", "queue_partition_leases")
		if err == nil {
			return nil
		}
		if pauseErr := pause(ctx, 100*time.Millisecond); pauseErr != nil {
			return err
		}
	}
}
