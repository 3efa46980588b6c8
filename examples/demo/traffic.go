package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// stallTimeout is how long nothing may move while requests are open: many times
// what it takes to replace a process that was killed.
const stallTimeout = 10 * leaseDuration

// landers send requests at the same time.
const landers = 16

// land sends every change at its time, and calls sent with how many were
// accepted so far.
func land(ctx context.Context, submitqueue *client, plan Plan, sent func(n int) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(landers)
	var accepted atomic.Int64
	start := time.Now()
	for _, c := range plan.Changes {
		if err := pause(groupCtx, time.Until(start.Add(c.At))); err != nil {
			break // which Wait or the caller's context explains
		}
		group.Go(func() error {
			body, err := json.Marshal(map[string]string{"queue": c.Queue, "change": c.Name})
			if err != nil {
				return err
			}
			// 200 answers a repetition, after an answer that was lost.
			a, err := submitqueue.do(groupCtx, http.MethodPost, "/land", body)
			if err == nil && a.status != http.StatusAccepted && a.status != http.StatusOK {
				err = fmt.Errorf("land %s on %s: %d %s", c.Name, c.Queue, a.status, a.body)
			}
			if err != nil {
				return err
			}
			return sent(int(accepted.Add(1)))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// counts of requests by state.
type counts map[string]int

func (c counts) ended() int {
	return c["landed"] + c["conflicted"] + c["check_failed"] + c["dead_lettered"]
}

func (c counts) total() int {
	n := 0
	for _, count := range c {
		n += count
	}
	return n
}

// listing of a queue's requests, as submitqueue answers it.
type listing struct {
	States   counts `json:"states"`
	Requests []struct {
		Change  string `json:"change"`
		State   string `json:"state"`
		History []struct {
			State  string `json:"state"`
			At     int64  `json:"at"`
			Detail string `json:"detail"`
		} `json:"history"`
	} `json:"requests"`
}

// watch shows progress, and does what is done to a repository every few seconds,
// until every request has ended.
func watch(ctx context.Context, submitqueue, stovepipe *client, plan Plan, repository string) error {
	shown, moved, last := time.Now(), time.Now(), make(counts)
	for {
		all := make(counts)
		for _, queue := range plan.Queues {
			var l listing
			if err := submitqueue.read(ctx, "/queues/"+url.PathEscape(queue)+"/requests?limit=0", &l); err != nil {
				return err
			}
			for state, n := range l.States {
				all[state] += n
			}
		}
		ended := all.ended() == len(plan.Changes)
		if ended || time.Since(shown) >= 2*time.Second {
			shown = time.Now()
			say("%4d of %d accepted: %d waiting, %d checking, %d merging, %d landed, %d conflicted, %d failed their check, %d dead-lettered", all.total(), len(plan.Changes),
				all["accepted"], all["checking"], all["merging"], all["landed"], all["conflicted"], all["check_failed"], all["dead_lettered"])
			for _, queue := range plan.Queues {
				if _, err := ingest(ctx, stovepipe, queue); err != nil {
					return err
				}
			}
			// Without it every merge reads each commit since the change's fork.
			if _, err := gitLines(ctx, repository, "commit-graph", "write", "--reachable"); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		if !maps.Equal(all, last) {
			moved, last = time.Now(), all
		}
		if time.Since(moved) > stallTimeout {
			return fmt.Errorf("no request has moved for %v", stallTimeout)
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}

// ingest has a queue's head validated and returns its commit.
func ingest(ctx context.Context, stovepipe *client, queue string) (string, error) {
	a, err := stovepipe.do(ctx, http.MethodPost, "/ingest", fmt.Appendf(nil, `{"queue": %q}`, queue))
	if err != nil {
		return "", err
	}
	var head struct{ Commit, State, Detail string }
	if err := json.Unmarshal(a.body, &head); err != nil || head.Commit == "" || head.State == "broken" {
		return "", fmt.Errorf("ingest the head of %s: %d %s", queue, a.status, a.body)
	}
	return head.Commit, nil
}

// validate waits until the last head of every queue is its last green commit,
// and sees a queue refused that nobody serves.
func validate(ctx context.Context, stovepipe *client, plan Plan) error {
	for _, queue := range plan.Queues {
		head, err := ingest(ctx, stovepipe, queue)
		if err != nil {
			return err
		}
		for green := ""; green != head; {
			var answer struct {
				LastGreen string `json:"last_green"`
			}
			if err := stovepipe.read(ctx, "/queues/"+url.PathEscape(queue), &answer); err != nil {
				return err
			}
			if green = answer.LastGreen; green != head {
				if err := pause(ctx, 50*time.Millisecond); err != nil {
					return fmt.Errorf("wait for head %s of %s to be green, last is %q: %w", head, queue, green, err)
				}
			}
		}
	}
	a, err := stovepipe.do(ctx, http.MethodPost, "/ingest", []byte(`{"queue": "nobody"}`))
	if err != nil {
		return err
	}
	if a.status != http.StatusNotFound || !bytes.Contains(a.body, []byte("unknown tenant")) {
		return fmt.Errorf("ingest for a queue outside MQ_TENANTS: %d %s, want 404", a.status, a.body)
	}
	say("every head is green; stovepipe refused a queue it does not serve: %s", strings.TrimSpace(string(a.body)))
	return nil
}
