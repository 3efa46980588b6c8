package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/mqfx"
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
			lines, err := readLines(in, &t, s.cfg.Publish)
			if err != nil {
				return usage(err)
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

// line is a message and where it stands in the input.
type line struct {
	number  int // from 1
	message backend.Message
}

// readLines reads and checks all lines; they stay in memory.
func readLines(in io.Reader, t *target, limits mqfx.Publish) ([]line, error) {
	var lines []line
	r := bufio.NewReader(in)
	for number := 1; ; number++ {
		text, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			m, err := readMessage(text, t, limits)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w; nothing was published", number, err)
			}
			lines = append(lines, line{number, m})
		}
		if err != nil {
			break
		}
	}
	if len(lines) == 0 {
		return nil, errors.New("the input has no lines; want a JSON object for each message")
	}
	return lines, nil
}

func readMessage(text []byte, t *target, limits mqfx.Publish) (backend.Message, error) {
	var doc struct {
		ID            string            `json:"id"`
		PartitionKey  string            `json:"partition_key"`
		Payload       *string           `json:"payload"`
		PayloadBase64 *[]byte           `json:"payload_base64"`
		JSON          json.RawMessage   `json:"json"`
		Metadata      map[string]string `json:"metadata"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return backend.Message{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return backend.Message{}, errors.New("something follows the JSON object; write one a line")
	}
	m := backend.Message{Tenant: t.tenantID(), Topic: t.topic, PartitionKey: doc.PartitionKey, ID: doc.ID, Metadata: doc.Metadata}
	payloads := 0
	if doc.Payload != nil {
		payloads++
		m.Payload = []byte(*doc.Payload)
	}
	if doc.PayloadBase64 != nil {
		payloads++
		m.Payload = *doc.PayloadBase64
	}
	if doc.JSON != nil {
		payloads++
		m.Payload = doc.JSON
	}
	if payloads != 1 {
		return backend.Message{}, fmt.Errorf(`%d of "payload", "payload_base64" and "json" are given; give one of them`, payloads)
	}
	if err := m.Validate(); err != nil {
		return backend.Message{}, err
	}
	if n := len(m.Payload); n > limits.MaxPayload {
		return backend.Message{}, fmt.Errorf("the payload has %d bytes; mq.publish.max_payload allows %d", n, limits.MaxPayload)
	}
	metadata, err := json.Marshal(m.Metadata)
	if err != nil {
		return backend.Message{}, err
	}
	if n := len(metadata); n > limits.MaxMetadata {
		return backend.Message{}, fmt.Errorf("the metadata has %d bytes in JSON; mq.publish.max_metadata allows %d", n, limits.MaxMetadata)
	}
	return m, nil
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

func (a *app) publish(ctx context.Context, s *session, t *target, lines []line) error {
	doc := publishDoc{Tenant: t.tenant, Topic: t.topic, Duplicates: []duplicateDoc{}}
	progress := a.progress()
	for batch, rest := takeBatch(lines); len(batch) > 0; batch, rest = takeBatch(rest) {
		msgs := make([]backend.Message, len(batch))
		for i, l := range batch {
			msgs[i] = l.message
		}
		receipts, err := s.queue.Publish(ctx, msgs...)
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

// publishError says what is stored when a batch has failed.
func publishError(doc publishDoc, batch []line, err error) error {
	first, last := batch[0].number, batch[len(batch)-1].number
	return partialError{fmt.Errorf("lines before %d: %d published, %d duplicates; whether %d to %d are stored is unknown, and publishing the same input again is safe: %w",
		first, doc.Published, len(doc.Duplicates), first, last, err)}
}
