package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/internal/engine"
)

// letter is a message on its way to the dead-letter topic.
type letter struct {
	row
	engine.DeadLetter
}

// messageAt names a message of a topic by its place.
type messageAt struct {
	key    string
	offset uint64
}

// takenError tells that ids on the dead-letter topic belong to other failures:
// of another group, or of an earlier message of the same id.
type takenError struct{ letters []messageAt }

func (e *takenError) Error() string {
	return fmt.Sprintf("the ids of %d dead letters are taken", len(e.letters))
}

// writeDeadLetters publishes what is given up. The same failure stored already
// is a success: an earlier run was committed.
func (t *settling) writeDeadLetters(ctx context.Context) error {
	if t.cfg.DeadLetter.Disabled {
		return nil
	}
	topic := t.cfg.DeadLetterTopic(t.topic)
	for _, p := range t.parts {
		for _, dl := range p.DeadLetters {
			metadata, err := encodeMetadata(dl.Message.Metadata)
			if err != nil {
				return err
			}
			id := dl.Message.ID
			if t.renamed[messageAt{p.Key, dl.Message.Offset}] {
				id = derivedID(id, t.group, dl.Message.Offset)
			}
			payload := dl.Message.Payload
			if payload == nil {
				payload = []byte{} // nil is NULL
			}
			t.letters = append(t.letters, &letter{
				row:        row{identity: identity{partition{topic, p.Key}, id}, payload: payload, metadata: metadata},
				DeadLetter: dl,
			})
		}
	}
	if len(t.letters) == 0 {
		return nil
	}
	publishID := t.next()
	for rest := t.letters; len(rest) > 0; {
		n, size := 1, rest[0].size()
		for n < len(rest) && n < t.q.cfg.MaxBatchRows && size+rest[n].size() <= t.q.cfg.MaxBatchBytes {
			size += rest[n].size()
			n++
		}
		if err := t.insertLetters(ctx, rest[:n], publishID); err != nil {
			return fmt.Errorf("insert %d dead letters: %w", n, err)
		}
		rest = rest[n:]
	}
	return t.checkLetters(ctx)
}

// size bounds what a letter adds to a statement.
func (l *letter) size() int { return l.row.size() + 2*len(l.Error) }

func (t *settling) insertLetters(ctx context.Context, letters []*letter, publishID uint64) error {
	q := newQuery(6*len(letters), stmtDeadLetters)
	for i, l := range letters {
		q.item(i, ", ", deadLetterRow, string(t.tenant), l.topic, l.key, l.id, l.payload, l.metadata, publishID,
			t.topic, l.Message.ID, l.Message.Offset, t.group, l.Attempts, errorText(l.Error))
	}
	return q.add(stmtInsertEnd).exec(ctx, t.tx)
}

// checkLetters reads the letters back and holds them against the fence, as a
// publish does.
func (t *settling) checkLetters(ctx context.Context) error {
	var taken takenError
	for chunk := range slices.Chunk(t.letters, listTerms) {
		q := newQuery(len(chunk), stmtDeadLettersBack, string(t.tenant), chunk[0].topic)
		wanted := make(map[identity][]*letter, len(chunk))
		for i, l := range chunk {
			q.item(i, " OR ", identityTerm, l.key, l.id)
			wanted[l.identity] = append(wanted[l.identity], l)
		}
		found := row{identity: identity{partition: partition{topic: chunk[0].topic}}}
		var originalTopic, group string
		var originalOffset uint64
		dest := []any{&found.key, &found.id, &found.offset, &found.publishID, &originalTopic, &originalOffset, &group}
		err := q.add(")").each(ctx, t.tx, dest, func() {
			for _, l := range wanted[found.identity] {
				l.offset, l.publishID = found.offset, found.publishID
				if originalTopic != t.topic || group != t.group || originalOffset != l.Message.Offset {
					taken.letters = append(taken.letters, messageAt{l.key, l.Message.Offset})
				}
			}
		})
		if err != nil {
			return fmt.Errorf("read %d dead letters back: %w", len(chunk), err)
		}
	}
	if len(taken.letters) > 0 {
		return &taken
	}
	var missing []*row
	first := make(map[partition]uint64)
	for _, l := range t.letters {
		switch at, ok := first[l.partition]; {
		case l.offset == 0:
			missing = append(missing, &l.row)
		case t.isFresh(l.publishID) && (!ok || l.offset < at):
			first[l.partition] = l.offset
		}
	}
	if len(missing) > 0 {
		return lagging(ctx, t.tx, t.tenant, missing)
	}
	if len(first) == 0 {
		return nil
	}
	return readFence(ctx, t.tx, t.tenant, first)
}

// notify wakes the subscriptions of this process for dead letters.
func (t *settling) notify() {
	wakes := make([]engine.Wake, len(t.letters))
	for i, l := range t.letters {
		wakes[i] = engine.Wake{Tenant: t.tenant, Topic: l.topic, Key: l.key, Offset: l.offset}
	}
	t.q.hub.Notify(wakes...)
}

// derivedID is the id of a copy whose own id is taken: always the same for the
// same failure.
func derivedID(id, group string, offset uint64) string {
	const hashLength = 32
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", group, offset, id))
	chars := []rune(id)
	chars = chars[:min(len(chars), backend.MaxIdentLength-1-hashLength)]
	return string(chars) + "~" + hex.EncodeToString(sum[:hashLength/2])
}
