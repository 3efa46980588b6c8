package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/publish"
)

var publishArgs = []string{"message", "publish", "--tenant", "acme", "--topic", orders}

func TestPublish(t *testing.T) {
	f := newFixture(t)
	const input = `{"id":"text","partition_key":"k","payload":"hi\n","metadata":{"a":"b"}}

{"id":"binary","partition_key":"k","payload_base64":"AAEC"}
  {"id":"json","partition_key":"k","json":{"total": 3.10}}
{"id":"text","partition_key":"k","payload":"again"}
{"id":"empty","partition_key":"k","payload":""}`
	f.equal("first", publishDoc{"acme", orders, 4, []duplicateDoc{{5, "k", "text", 1}}},
		decode[publishDoc](f.feed(input, append(publishArgs, "--json")...).want(exitDone)))

	file := filepath.Join(t.TempDir(), "orders.ndjson")
	f.check(os.WriteFile(file, []byte(input), 0o600))
	f.run(append(publishArgs, "--file", file)...).want(exitDone, "published 0, duplicates 5", "line 5: stored already at offset 1")

	for id, want := range map[string]string{"text": "hi\n", "binary": "\x00\x01\x02", "json": `{"total": 3.10}`, "empty": ""} {
		r := f.run("message", "show", "--raw", "--tenant", "acme", "--topic", orders, "--key", "k", "--id", id)
		if r.code != exitDone || r.stdout != want {
			t.Errorf("%s: %q", id, r.stdout)
		}
	}
}

// What is published carries the metadata that the services' own messages carry.
func TestPublishedMessageIsAsTheServices(t *testing.T) {
	f := newFixture(t)
	f.feed(`{"id":"json","partition_key":"k","json":{}}
		{"id":"own","partition_key":"k","json":{},"metadata":{"content_type":"application/vnd.orders+json","trace":"17"}}
		{"id":"text","partition_key":"k","payload":"x"}`, publishArgs...).want(exitDone)
	for id, want := range map[string]map[string]string{
		"json": {publish.QueueNameKey: "acme", publish.ContentTypeKey: publish.ContentTypeJSON},
		"own":  {publish.QueueNameKey: "acme", publish.ContentTypeKey: "application/vnd.orders+json", "trace": "17"},
		"text": {publish.QueueNameKey: "acme"},
	} {
		var got map[string]string
		doc := decode[messageDoc](f.run("message", "show", "--json", "--tenant", "acme", "--topic", orders, "--key", "k", "--id", id).want(exitDone))
		f.check(json.Unmarshal(doc.Metadata, &got))
		f.equal("metadata of "+id, want, got)
	}
}

func TestBadLineIsNamedAndNothingPublished(t *testing.T) {
	f := newFixture(t)
	const good = `{"id":"a","partition_key":"k","payload":"x"}` + "\n"
	for line, want := range map[string]string{
		`{"id":"b","partition_key":"k"}`:                                                  `0 of "payload"`,
		`{"id":"b","partition_key":"k","payload":"x","json":1}`:                           `2 of "payload"`,
		`{"id":"b","partition_key":"k","payload":"x","key":1}`:                            `unknown key "key"; want id`,
		`{"id":"b","partition_key":"k","payload":"x"} {}`:                                 "one a line",
		`{"id":"b","payload":"x"}`:                                                        "partition key: must not be empty",
		`{"id":"","partition_key":"k","payload":"x"}`:                                     "message id: must not be empty",
		`{"id":"b","partition_key":"k","payload_base64":"?"}`:                             `"payload_base64" is not base64`,
		`{"id":"b","partition_key":"k","payload":"x","metadata":{"queue_name":"globex"}}`: `published for tenant "acme"`,
		`id=b`:   "not a JSON object: invalid character",
		`[1]`:    "not a JSON object: it is a JSON array",
		`{"id":`: "not a JSON object: it ends too early",
		`{"id":7,"partition_key":"k","payload":"x"}`:                                                         `"id" is a number; want a string`,
		`{"id":"b","partition_key":"k","payload":"` + strings.Repeat("x", 1<<20+1) + `"}`:                    "max_payload",
		`{"id":"b","partition_key":"k","payload":"","metadata":{"a":"` + strings.Repeat("x", 16<<10) + `"}}`: "max_metadata",
	} {
		f.feed(good+"\n"+line+"\n"+good, publishArgs...).want(exitUsage, "line 3: ", want, "nothing was published")
	}
	f.feed("\n", publishArgs...).want(exitUsage, "no lines")
	f.equal("messages", 0, f.stored(orders))
}

// More than a batch arrives whole and in order, and a batch that fails leaves
// those before it.
func TestPublishGoesInBatches(t *testing.T) {
	f := newFixture(t)
	var input strings.Builder
	for i := range batchMessages + 1 {
		fmt.Fprintf(&input, "{\"id\":\"m%d\",\"partition_key\":\"k\",\"payload\":\"\"}\n", i)
	}
	r := decode[publishDoc](f.feed(input.String(), append(publishArgs, "--json")...).want(exitDone))
	f.equal("published", batchMessages+1, r.Published)
	f.equal("messages", batchMessages+1, f.stored(orders))

	f.exec(`CREATE TRIGGER refuse BEFORE INSERT ON queue_messages FOR EACH ROW
		IF NEW.id = 'last' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`)
	input.WriteString(`{"id":"last","partition_key":"k","payload":""}` + "\n")
	f.feed(strings.ReplaceAll(input.String(), `"m`, `"n`), publishArgs...).
		want(exitFailed, "lines before 501: 500 published, 0 duplicates", "501 to 502", "refused")
	f.equal("messages", 2*batchMessages+1, f.stored(orders))
}
