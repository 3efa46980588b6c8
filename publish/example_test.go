package publish_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tenantmq/tenantmq/publish"
	"github.com/tenantmq/tenantmq/tenants"
)

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
