package publish_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/backend/memory"
	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

// Publishing under the same ids again stores nothing: whoever does not know
// whether he has published just does it again.
func Example() {
	ctx := context.Background()
	set, _ := tenants.Parse("docs, ios")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)
	pub := publish.New(q, publish.WithTenants(set))

	msgs := []publish.Message{
		{ID: publish.IntentID("change/17", "accepted"), PartitionKey: "main", Payload: []byte("17")},
		{ID: publish.IntentID("change/18", "accepted"), PartitionKey: "main", Payload: []byte("18")},
	}
	for range 2 {
		receipts, err := pub.Publish(ctx, "docs", "request", msgs...)
		if err != nil {
			fmt.Println(err)
			return
		}
		for i, r := range receipts {
			fmt.Println(msgs[i].ID, "duplicate:", r.Duplicate)
		}
	}
	// Output:
	// change/17:accepted duplicate: false
	// change/18:accepted duplicate: false
	// change/17:accepted duplicate: true
	// change/18:accepted duplicate: true
}

// What the queue cannot store is refused with the name of the field and what
// would be accepted.
func ExampleNew() {
	ctx := context.Background()
	set, _ := tenants.New("docs")
	q, err := memory.NewQueue(memory.Params{Tenants: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close(ctx)

	_, err = publish.New(q).Publish(ctx, "docs", "request", publish.Message{ID: "17", PartitionKey: "main "})
	field, _ := errors.AsType[*backend.FieldError](err)
	fmt.Println(field.Field, field.Value)
	fmt.Println(errors.Is(err, backend.ErrInvalid))
	// Output:
	// partition key "main "
	// true
}

func ExampleJSON() {
	m, err := publish.JSON(publish.IntentID("change/17", "accepted"), "main", map[string]int{"change": 17})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.ID)
	fmt.Println(string(m.Payload), m.Metadata)
	// Output:
	// change/17:accepted
	// {"change":17} map[content_type:application/json]
}

// The outbox: the request and its message exist together or not at all.
func ExamplePublisher_publishTx() {
	accept := func(ctx context.Context, db *sql.DB, pub publish.Publisher, queue, change string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO request (queue, change_id) VALUES (?, ?)", queue, change); err != nil {
			return err
		}
		_, err = pub.PublishTx(ctx, tx, tenants.ID(queue), "request", publish.Message{
			ID:           publish.IntentID(change, "accepted"),
			PartitionKey: change,
			Payload:      []byte(`{"change":"` + change + `"}`),
		})
		if err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = accept
}

// A tenant outside the list is refused before anything is stored.
func ExampleWithTenants() {
	set, _ := tenants.Parse("docs, ios")
	pub := publish.New(&recorder{}, publish.WithTenants(set))

	_, err := pub.Publish(context.Background(), "android", "request", publish.Message{ID: "1", PartitionKey: "c"})
	fmt.Println(err)
	// Output: unknown tenant "android": MQ_TENANTS lists "docs", "ios"
}

func ExampleIntentID() {
	fmt.Println(publish.IntentID("change/17", "accepted"))
	fmt.Println(publish.IntentID("change/17", "checked", "build:4"))
	// Output:
	// change/17:accepted
	// change/17:checked:build%3A4
}
