package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/publish"
)

func (a *app) messagePublish() *cobra.Command {
	var t target
	var file string
	c := &cobra.Command{
		Use: "publish", Short: "Publish messages from a file or standard input",
		Long: "Publish messages from a file or standard input, a JSON object a line:\n\n" +
			`  {"id": "order-4711", "partition_key": "customer-17", "payload": "text", "metadata": {"k": "v"}}` + "\n\n" +
			"with one of \"payload\" (text), \"payload_base64\" and \"json\" (any JSON, published as it is written).\n" +
			"All lines are checked before the first is published; then they go in batches, each all or nothing. An id\n" +
			"that is stored already is a duplicate and changes nothing, so publishing the same lines again is safe.",
		Example: "  mqctl message publish --tenant acme --topic orders < orders.ndjson",
		RunE: a.lasting(nil, func(ctx context.Context, s *session) error {
			in, err := a.input(file)
			if err != nil {
				return usage(err)
			}
			defer in.Close()
			lines, err := readLines(ctx, in, &t, s.cfg.Publish)
			if err != nil {
				return usage(err)
			}
			if err := a.within(ctx, func(ctx context.Context) error { return a.noteUnread(ctx, s, &t) }); err != nil {
				return err
			}
			return a.publish(ctx, s, &t, lines)
		}),
	}
	t.need(c, "tenant", "topic")
	c.Flags().StringVar(&file, "file", "-", "the `file`; - is standard input")
	return c
}

func (a *app) input(file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(a.in), nil
	}
	return os.Open(file)
}

// noteUnread warns of what may be a misspelt topic.
func (a *app) noteUnread(ctx context.Context, s *session, t *target) error {
	groups, err := s.groupsOf(ctx, t)
	if err != nil || len(groups) > 0 {
		return err
	}
	topics, err := s.topicNames(ctx, t.tenantID())
	if err == nil {
		a.note("no group is registered for topic %s of tenant %s: the messages wait until one is, and are lost on those that begin with the latest;"+
			" topics of the tenant: %s", quote(t.topic), quote(t.tenant), some(topics))
	}
	return err
}

// publish publishes lines batch by batch.
func (a *app) publish(ctx context.Context, s *session, t *target, lines []line) error {
	doc := publishDoc{Tenant: t.tenant, Topic: t.topic, Duplicates: []duplicateDoc{}}
	progress := a.progress()
	publisher := publish.New(s.queue)
	for batch, rest := takeBatch(lines); len(batch) > 0; batch, rest = takeBatch(rest) {
		msgs := make([]publish.Message, len(batch))
		for i, l := range batch {
			msgs[i] = l.message
		}
		receipts, err := publisher.Publish(ctx, t.tenantID(), t.topic, msgs...)
		if err != nil {
			progress.end()
			return publishError(doc, batch, err)
		}
		for i, r := range receipts {
			if r.Duplicate {
				doc.Duplicates = append(doc.Duplicates, duplicateDoc{batch[i].number, msgs[i].PartitionKey, msgs[i].ID, r.Offset})
			} else {
				doc.Published++
			}
		}
		progress.show("%d published", doc.Published)
	}
	progress.end()
	return a.emit(doc, func() error {
		for _, d := range doc.Duplicates {
			a.note("line %d: stored already at offset %d: partition key %s, message %s", d.Line, d.Offset, quote(d.PartitionKey), quote(d.ID))
		}
		return a.line("published %d, duplicates %d: %v", doc.Published, len(doc.Duplicates), t)
	})
}

// What goes into a transaction at most.
const (
	batchMessages = 500
	batchBytes    = 4 << 20
)

// takeBatch cuts off the lines of the next transaction, one at least.
func takeBatch(lines []line) (batch, rest []line) {
	size := 0
	for i, l := range lines {
		if size += len(l.message.Payload); i > 0 && (i == batchMessages || size > batchBytes) {
			return lines[:i], lines[i:]
		}
	}
	return lines, nil
}

type publishDoc struct {
	Tenant     string         `json:"tenant"`
	Topic      string         `json:"topic"`
	Published  int            `json:"published"`
	Duplicates []duplicateDoc `json:"duplicates"`
}

type duplicateDoc struct {
	Line         int    `json:"line"`
	PartitionKey string `json:"partition_key"`
	ID           string `json:"id"`
	Offset       uint64 `json:"offset"`
}

// publishError says what is stored when a batch has failed.
func publishError(doc publishDoc, batch []line, err error) error {
	first, last := batch[0].number, batch[len(batch)-1].number
	return partialError{fmt.Errorf("lines before %d: %d published, %s; whether %d to %d are stored is unknown, and publishing the same input again is safe: %w",
		first, doc.Published, plural(len(doc.Duplicates), "duplicate"), first, last, err)}
}
