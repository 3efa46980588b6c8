package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnotherClusterThanAskedForIsRefused(t *testing.T) {
	r := record{DSN: "mq@tcp(127.0.0.1:1)/mq", Shards: []string{"-80", "80-"}, Tables: []string{"/src/orders"}}
	for want, asked := range map[string]struct {
		shards int
		tables []string
	}{
		"":                   {2, []string{"/src/orders"}},
		"and a cluster of 4": {4, []string{"/src/orders"}},
		"with the tables of the queue was asked for: make vitess-down first": {2, nil},
	} {
		err := r.check(asked.shards, asked.tables)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", asked, err, want)
		}
	}
}

func TestRecordSaysHowToUseTheCluster(t *testing.T) {
	r := record{
		DSN: "mq@tcp(127.0.0.1:1)/mq", Shards: []string{"-80", "80-"}, Tables: []string{"/src/orders"},
		Gate: "http://gate", Tablets: []string{"http://first", "http://second"}, Logs: "/logs",
	}
	file := filepath.Join(t.TempDir(), "cluster.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	got, err := readRecord(file)
	if diff := cmp.Diff(r, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	var text strings.Builder
	if err := got.explain(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 shards", "the queue, orders", "external_schema: true, server_isolation: true", "export MQ_DSN='" + r.DSN + "'",
		"http://gate", "-80", "http://first", "http://second", "/logs/*.log", "make vitess-down",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %s:\n%s", want, &text)
		}
	}
}
