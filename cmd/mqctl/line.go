package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/mqfx"
	"github.com/tenantmq/tenantmq/publish"
)

// line is a message and where it stands in the input.
type line struct {
	number  int // from 1
	message publish.Message
}

// readLines reads and checks all lines; they stay in memory. It returns with ctx,
// whoever types the input.
func readLines(ctx context.Context, in io.Reader, t *target, limits mqfx.Publish) ([]line, error) {
	read := make(chan struct{})
	var found []line
	var readErr error
	go func() { // a read of a terminal cannot be interrupted: it ends with the process at the latest
		defer close(read)
		found, readErr = scanLines(in, t, limits)
	}()
	select {
	case <-read:
		return found, readErr
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func scanLines(in io.Reader, t *target, limits mqfx.Publish) ([]line, error) {
	var lines []line
	r := bufio.NewReader(in)
	for number := 1; ; number++ {
		text, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			m, err := readMessage(text)
			if err == nil {
				// The metadata that a publisher adds counts as well.
				_, err = publish.New(limiter(limits)).Publish(context.Background(), t.tenantID(), t.topic, m)
			}
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

// document is a line of the input.
type document struct {
	ID            string            `json:"id"`
	PartitionKey  string            `json:"partition_key"`
	Payload       *string           `json:"payload"`
	PayloadBase64 *[]byte           `json:"payload_base64"`
	JSON          json.RawMessage   `json:"json"`
	Metadata      map[string]string `json:"metadata"`
}

// readMessage marks what is given as JSON as [publish.JSON] does.
func readMessage(text []byte) (publish.Message, error) {
	var doc document
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return publish.Message{}, inWords(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return publish.Message{}, errors.New("something follows the JSON object; write one a line")
	}
	m := publish.Message{ID: doc.ID, PartitionKey: doc.PartitionKey, Metadata: doc.Metadata}
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
		if _, ok := m.Metadata[publish.ContentTypeKey]; !ok {
			if m.Metadata == nil {
				m.Metadata = make(map[string]string)
			}
			m.Metadata[publish.ContentTypeKey] = publish.ContentTypeJSON
		}
	}
	if payloads != 1 {
		return publish.Message{}, fmt.Errorf(`%d of "payload", "payload_base64" and "json" are given; give one of them`, payloads)
	}
	return m, nil
}

// inWords says what is wrong with a line to somebody who does not know Go.
func inWords(err error) error {
	mismatch, isMismatch := errors.AsType[*json.UnmarshalTypeError](err)
	_, isBase64 := errors.AsType[base64.CorruptInputError](err)
	unknown, isUnknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case isBase64:
		return fmt.Errorf(`"payload_base64" is not base64: %w`, err)
	case isUnknown:
		return fmt.Errorf("unknown key %s; want id, partition_key, metadata and one of payload, payload_base64 and json", unknown)
	case isMismatch && mismatch.Field != "":
		return fmt.Errorf("%q is a %s; want a string, and in metadata only strings", mismatch.Field, mismatch.Value)
	case isMismatch:
		return fmt.Errorf("not a JSON object: it is a JSON %s", mismatch.Value)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("not a JSON object: it ends too early")
	}
	return fmt.Errorf("not a JSON object: %w", err)
}

// limiter refuses the messages that the queue would, and stores nothing.
type limiter mqfx.Publish

func (l limiter) Publish(_ context.Context, msgs ...backend.Message) ([]backend.Receipt, error) {
	for _, m := range msgs {
		if err := m.Validate(); err != nil {
			return nil, err
		}
		if n := len(m.Payload); n > l.MaxPayload {
			return nil, fmt.Errorf("the payload has %s; mq.publish.max_payload allows %d", plural(n, "byte"), l.MaxPayload)
		}
		metadata, err := json.Marshal(m.Metadata)
		if err != nil {
			return nil, err
		}
		if n := len(metadata); n > l.MaxMetadata {
			return nil, fmt.Errorf("the metadata has %s in JSON; mq.publish.max_metadata allows %d", plural(n, "byte"), l.MaxMetadata)
		}
	}
	return make([]backend.Receipt, len(msgs)), nil
}

// PublishTx has no transaction to check messages in.
func (limiter) PublishTx(context.Context, *sql.Tx, ...backend.Message) ([]backend.Receipt, error) {
	return nil, backend.ErrNotSupported
}
