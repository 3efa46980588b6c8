package publish_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenantmq/tenantmq/publish"
)

func TestJSONMakesAMessage(t *testing.T) {
	got, err := publish.JSON("1", "k", struct {
		Change string `json:"change"`
	}{"c4"})
	if err != nil {
		t.Fatal(err)
	}
	want := publish.Message{
		ID: "1", PartitionKey: "k", Payload: []byte(`{"change":"c4"}`),
		Metadata: map[string]string{"content_type": "application/json"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJSONRefusesWhatJSONCannotSay(t *testing.T) {
	m, err := publish.JSON("land:c4", "k", make(chan int))
	if _, ok := errors.AsType[*json.UnsupportedTypeError](err); !ok || !strings.Contains(err.Error(), `message "land:c4"`) || m.Payload != nil {
		t.Errorf("got message %+v, error %v", m, err)
	}
}
