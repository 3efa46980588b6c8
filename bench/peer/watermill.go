package peer

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	watermillTopic = "bench"
	watermillGroup = "bench"
)

// WatermillOptions are what a user of watermill-sql decides.
type WatermillOptions struct {
	Name string // of the peer; by default "watermill-sql", with "-queue" for a queue

	// BatchSize is SubscribeBatchSize. Its documentation calls 1 the safest and
	// warns that it is slow. 0 is [WatermillBestBatch].
	BatchSize int

	// Queue takes MySQLQueueSchema, which deletes messages on ack, in place of
	// DefaultMySQLSchema, which moves a group's offset. It has no groups, and one
	// statement less a message. It is fast at a price that is not documented: a
	// batch of which one message is not acknowledged, as when the subscriber is
	// closed, is deleted whole (v4.1.2).
	Queue bool
}

// WatermillBestBatch was faster than 100, its default; 10,000 was no faster still.
const WatermillBestBatch = 1000

// Watermill is github.com/ThreeDotsLabs/watermill-sql on the server that is
// measured, with a schema of its own for MySQL: one ordered stream, without
// partitions.
type Watermill struct {
	db      *mysqlDB
	name    string
	group   string
	schema  watermillsql.SchemaAdapter
	offsets watermillsql.OffsetsAdapter
	pending string // counts the messages that are not settled

	mu     sync.Mutex
	keys   map[string]struct{}
	stored int // messages not yet settled
}

// NewWatermill makes a database of its own on the server that a DSN names.
func NewWatermill(ctx context.Context, dsn string, opts WatermillOptions) (*Watermill, error) {
	w := &Watermill{name: "watermill-sql"}
	batch := cmp.Or(opts.BatchSize, WatermillBestBatch)
	if opts.Queue {
		w.name += "-queue"
		w.queue(batch)
	} else {
		w.stream(batch)
	}
	w.name = cmp.Or(opts.Name, w.name)
	var err error
	if w.db, err = newMySQL(ctx, dsn, fmt.Sprintf("watermill_%d_%t", batch, opts.Queue)); err != nil {
		return nil, named(err, w.name, "open")
	}
	if err := w.Reset(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// blob is the type of a payload's column. The default is JSON, which ours are
// not.
func blob(string) string { return "LONGBLOB" }

func (w *Watermill) stream(batch int) {
	schema := watermillsql.DefaultMySQLSchema{SubscribeBatchSize: batch, GeneratePayloadType: blob}
	offsets := watermillsql.DefaultMySQLOffsetsAdapter{}
	w.group, w.schema, w.offsets = watermillGroup, schema, offsets
	w.pending = "SELECT COUNT(*) FROM " + schema.MessagesTable(watermillTopic) + " WHERE `offset` > COALESCE((SELECT offset_acked FROM " +
		offsets.MessagesOffsetsTable(watermillTopic) + " WHERE consumer_group = '" + watermillGroup + "'), 0)"
}

func (w *Watermill) queue(batch int) {
	schema := watermillsql.MySQLQueueSchema{SubscribeBatchSize: batch, GeneratePayloadType: blob}
	w.schema, w.offsets = schema, watermillsql.MySQLQueueOffsetsAdapter{DeleteOnAck: true}
	w.pending = "SELECT COUNT(*) FROM " + schema.MessagesTable(watermillTopic)
}

// Name implements [Peer].
func (w *Watermill) Name() string { return w.name }

// Reset implements [Peer]. watermill-sql makes its own tables.
func (w *Watermill) Reset(ctx context.Context) error {
	w.mu.Lock()
	w.keys, w.stored = make(map[string]struct{}), 0
	w.mu.Unlock()
	if err := w.db.reset(ctx); err != nil {
		return named(err, w.name, "reset")
	}
	sub, err := w.subscriber()
	if err != nil {
		return named(err, w.name, "reset")
	}
	return named(errors.Join(sub.SubscribeInitialize(watermillTopic), sub.Close()), w.name, "reset")
}

// Close implements [Peer].
func (w *Watermill) Close() error { return named(w.db.close(), w.name, "close") }

// Publish implements [Peer]. Its Publish is one INSERT of all the messages it is
// given, which commits by itself.
func (w *Watermill) Publish(ctx context.Context, publishers int, batches [][]Message) error {
	pub, err := w.publisher(watermillsql.BeginnerFromStdSQL(w.db.DB))
	if err != nil {
		return named(err, w.name, "publish")
	}
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		return w.publish(ctx, pub, batch)
	}), w.name, "publish")
}

// PublishTx implements [Peer]: a publisher takes a transaction for a database.
func (w *Watermill) PublishTx(ctx context.Context, publishers int, batches [][]Message) error {
	return named(spread(ctx, publishers, batches, func(ctx context.Context, batch []Message) error {
		return w.db.inTx(ctx, func(tx *sql.Tx) error {
			pub, err := w.publisher(watermillsql.TxFromStdSQL(tx))
			if err != nil {
				return err
			}
			return w.publish(ctx, pub, batch)
		})
	}), w.name, "publish in a transaction")
}

func (w *Watermill) publisher(db watermillsql.ContextExecutor) (*watermillsql.Publisher, error) {
	return watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: w.schema}, nil)
}

func (w *Watermill) publish(ctx context.Context, pub *watermillsql.Publisher, batch []Message) error {
	w.mu.Lock()
	w.stored += len(batch)
	for _, m := range batch {
		w.keys[m.Key] = struct{}{}
	}
	w.mu.Unlock()
	msgs := make([]*message.Message, len(batch))
	for i, m := range batch {
		msgs[i] = message.NewMessageWithContext(ctx, m.ID, m.Payload)
		msgs[i].Metadata.Set("key", m.Key)
	}
	return pub.Publish(watermillTopic, msgs...)
}

func (w *Watermill) subscriber() (*watermillsql.Subscriber, error) {
	var none time.Duration // no deadline and so no timer a message, as its documentation allows
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromStdSQL(w.db.DB), watermillsql.SubscriberConfig{
		ConsumerGroup:  w.group,
		AckDeadline:    &none,
		SchemaAdapter:  w.schema,
		OffsetsAdapter: w.offsets,
	}, nil)
}

// Consume implements [Peer]. A stream is not a partition a key: where each
// message has a key of its own, it cannot.
func (w *Watermill) Consume(ctx context.Context, n int) (err error) {
	w.mu.Lock()
	stored, keys := w.stored, len(w.keys)
	w.mu.Unlock()
	if n > stored {
		return fmt.Errorf("%s: consume: %d messages wanted, %d stored", w.name, n, stored)
	}
	if keys > 1 && keys == stored {
		return fmt.Errorf("%s: it %w give %d keys a partition each: a topic is one stream, and takes two tables", w.name, ErrCannot, keys)
	}
	sub, err := w.subscriber()
	if err != nil {
		return named(err, w.name, "consume")
	}
	defer func() { err = errors.Join(err, named(sub.Close(), w.name, "stop")) }()
	msgs, err := sub.Subscribe(ctx, watermillTopic)
	if err != nil {
		return named(err, w.name, "consume")
	}
	return named(w.settle(ctx, msgs, n), w.name, "consume")
}

// settle acknowledges messages until n are settled: the offset of a batch is
// committed after the last of its messages was acknowledged.
func (w *Watermill) settle(ctx context.Context, msgs <-chan *message.Message, n int) error {
	w.mu.Lock()
	want := w.stored - n
	w.mu.Unlock()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for handled := 0; ; {
		select {
		case m := <-msgs:
			m.Ack()
			handled++
		case <-tick.C:
			if handled < n {
				continue
			}
			left, err := w.unsettled(ctx)
			if err != nil {
				return err
			}
			if left <= want {
				w.mu.Lock()
				w.stored = left
				w.mu.Unlock()
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages: %w", handled, n, ctx.Err())
		}
	}
}

func (w *Watermill) unsettled(ctx context.Context) (int, error) {
	return w.db.count(ctx, w.pending)
}
