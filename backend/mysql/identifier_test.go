package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

// storedMessage is what the database gives back.
type storedMessage struct {
	tenant, topic, key, id string
	payload                []byte
	metadata               map[string]string
}

// readByIdentity looks a message up as everyone does, by its full identity.
func readByIdentity(db *sql.DB, m backend.Message) (storedMessage, error) {
	var s storedMessage
	var metadata string
	err := db.QueryRow("SELECT tenant, topic, partition_key, id, payload, metadata FROM queue_messages WHERE tenant = ? AND topic = ? AND partition_key = ? AND id = ?",
		string(m.Tenant), m.Topic, m.PartitionKey, m.ID).Scan(&s.tenant, &s.topic, &s.key, &s.id, &s.payload, &metadata)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(metadata), &s.metadata)
}

// checker is a *testing.T or a *rapid.T.
type checker interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

// checkStored publishes a message and compares what was stored, if it passes
// validation.
func checkStored(t checker, q *Queue, db *sql.DB, m backend.Message) {
	t.Helper()
	valid := m.Validate() == nil
	receipts, err := q.Publish(t.Context(), m)
	if !valid {
		if err == nil {
			t.Fatalf("stored although refused by Validate: %q", []string{string(m.Tenant), m.Topic, m.PartitionKey, m.ID})
		}
		return
	}
	if err != nil {
		t.Fatalf("valid and not stored: %v", err)
	}
	s, err := readByIdentity(db, m)
	if err != nil {
		t.Fatalf("stored at %d and not found: %v", receipts[0].Offset, err)
	}
	if s.tenant != string(m.Tenant) || s.topic != m.Topic || s.key != m.PartitionKey || s.id != m.ID {
		t.Fatalf("stored as %q", s)
	}
	if !receipts[0].Duplicate && (!bytes.Equal(s.payload, m.Payload) || !maps.Equal(s.metadata, m.Metadata)) {
		t.Fatalf("payload %q stored as %q, metadata %q as %q", m.Payload, s.payload, m.Metadata, s.metadata)
	}
}

// Strings that databases fold, trim, cut or refuse.
var hostile = []string{
	"a", "A", "á", "a\u0301", "ä", "a\u0308", "Å", "Å", "ß", "ss", "ẞ", "ﬁ", "fi", "ı", "i", "I", "İ",
	" a", "a", "\ta", "a\t", "a\n", "a\r\n", "a\x01", "\x01", "\x7f", "\x1a", "\x1b", "a\u00a0", "a\u2003", "\ufeffa", "\u200ba", "\u200da",
	"'", "\"", "\\", "`", "%", "_", "\\'", "--", "/*", ";", "?", "??", "NULL", "null", "0", "00", "0.0", "1e1", "10",
	"\U0001F600", "\U0001F600\u200d", "\U0010FFFF", "\uFFFD", "\uFFFF", "\uE000", "𝒶", "a", "日本", "日本", "ア", "ｱ", "あ", "\u05d0\u05d1",
	strings.Repeat("\U0001F600", 255), strings.Repeat("\U0001F600", 254) + "\U0001F601", strings.Repeat("é", 255), strings.Repeat("x", 255),
	strings.Repeat(" ", 254) + "x",
}

func TestIdentifiersThatDifferInGoDifferInTheDatabase(t *testing.T) {
	q, db := onDB(t)
	distinct := make(map[string]bool)
	var byID, byKey []backend.Message
	for _, s := range hostile {
		if distinct[s] {
			continue
		}
		distinct[s] = true
		byID = append(byID, backend.Message{Tenant: "a", Topic: "ids", PartitionKey: "k", ID: s})
		byKey = append(byKey, backend.Message{Tenant: "a", Topic: "keys", PartitionKey: s, ID: "m"})
	}
	for _, msgs := range [][]backend.Message{byID, byKey} {
		for i, r := range mustPublish(t, q, msgs...) {
			if r.Duplicate {
				t.Errorf("%+q is taken for another one", []string{msgs[i].PartitionKey, msgs[i].ID})
			}
		}
		for _, m := range msgs {
			checkStored(t, q, db, m)
		}
	}
	if n := queryInt(t, db, "SELECT COUNT(DISTINCT partition_key) FROM queue_messages WHERE topic = 'keys'"); n != len(byKey) {
		t.Errorf("%d partitions stored, want %d", n, len(byKey))
	}
}

// The ASCII identifiers, whose collation is another.
func TestOperationalIdentifiersThatDifferInGoDifferInTheDatabase(t *testing.T) {
	q, db := onDB(t)
	var msgs []backend.Message
	for _, s := range hostile {
		if backend.CheckTopic(s) != nil {
			continue
		}
		msgs = append(msgs, backend.Message{Tenant: "a", Topic: s, PartitionKey: "k", ID: "m"}, backend.Message{Tenant: tenants.ID(s), Topic: "t", PartitionKey: "k", ID: "m"})
	}
	if len(msgs) < 60 {
		t.Fatalf("only %d messages", len(msgs))
	}
	distinct := make(map[backendIdentity]bool)
	for i, r := range mustPublish(t, q, msgs...) {
		id := backendIdentity{msgs[i].Tenant, msgs[i].Topic}
		if r.Duplicate != distinct[id] {
			t.Errorf("%+q: duplicate %v", id, r.Duplicate)
		}
		distinct[id] = true
	}
	for _, m := range msgs {
		checkStored(t, q, db, m)
	}
}

type backendIdentity struct {
	tenant tenants.ID
	topic  string
}

func TestTrailingSpacesAreRefusedBeforeTheDatabase(t *testing.T) {
	q, db := onDB(t)
	for _, m := range []backend.Message{
		{Tenant: "a ", Topic: "t", PartitionKey: "k", ID: "m"},
		{Tenant: "a", Topic: "t ", PartitionKey: "k", ID: "m"},
		{Tenant: "a", Topic: "t", PartitionKey: "k ", ID: "m"},
		{Tenant: "a", Topic: "t", PartitionKey: "k", ID: "m  "},
	} {
		if _, err := q.Publish(t.Context(), m); err == nil || !strings.Contains(err.Error(), "must not end with a space") {
			t.Errorf("got %v", err)
		}
	}
	if n := queryInt(t, db, "SELECT COUNT(*) FROM queue_messages"); n != 0 {
		t.Errorf("%d messages stored", n)
	}
}

func TestWhatPassesValidationIsStoredByteForByte(t *testing.T) {
	q, db := onDB(t)
	ascii := rapid.StringOfN(rapid.RuneFrom(nil, asciiTable), 1, 255, 255)
	anyText := rapid.OneOf(rapid.StringN(1, 255, -1), rapid.SampledFrom(hostile))
	rapid.Check(t, func(t *rapid.T) {
		checkStored(t, q, db, backend.Message{
			Tenant: tenants.ID(ascii.Draw(t, "tenant")), Topic: ascii.Draw(t, "topic"), PartitionKey: anyText.Draw(t, "key"), ID: anyText.Draw(t, "id"),
			Payload:  rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Metadata: rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata"),
		})
	})
}

// Two ids are one message to the database if and only if they are equal in Go.
func TestIdentityIsEqualityInGo(t *testing.T) {
	q, _ := onDB(t)
	similar := rapid.Custom(func(t *rapid.T) string {
		s := rapid.OneOf(rapid.SampledFrom(hostile), rapid.StringN(1, 8, -1)).Draw(t, "base")
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 1:
			s = strings.ToUpper(s)
		case 2:
			s += rapid.SampledFrom([]string{"\x01", "\t", "\u00a0", "\u0301", "\u200b", "\U0001F3FB"}).Draw(t, "suffix")
		case 3:
			s = " " + s
		case 4:
			s = strings.ToLower(s)
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := similar.Draw(t, "a"), similar.Draw(t, "b")
		first := backend.Message{Tenant: "a", Topic: "t", PartitionKey: "k", ID: a}
		second := first
		second.ID = b
		if first.Validate() != nil || second.Validate() != nil {
			return
		}
		// One after the other: within a call Go would tell them apart.
		var offsets []uint64
		for _, m := range []backend.Message{first, second} {
			r, err := q.Publish(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			offsets = append(offsets, r[0].Offset)
		}
		if (a == b) != (offsets[0] == offsets[1]) {
			t.Fatalf("%+q and %+q: offsets %d and %d", a, b, offsets[0], offsets[1])
		}
	})
}

func FuzzStoredByteForByte(f *testing.F) {
	for _, s := range hostile {
		f.Add("tenant", "topic", s, s, []byte(s), s)
	}
	f.Add("\x01", "\x7f", "k", "m", []byte{0, '\\', '\''}, "\x00")
	f.Add("a", "b", "\xff", "\xc3", []byte(nil), "\xed\xa0\x80")
	q, db := onDB(f)
	f.Fuzz(func(t *testing.T, tenant, topic, key, id string, payload []byte, metadata string) {
		m := backend.Message{Tenant: tenants.ID(tenant), Topic: topic, PartitionKey: key, ID: id, Payload: payload, Metadata: map[string]string{metadata: metadata}}
		if m.Validate() == nil && (!utf8.ValidString(key+id) || strings.IndexByte(key+id, 0) >= 0) {
			t.Fatal("Validate let through what the columns cannot hold")
		}
		checkStored(t, q, db, m)
	})
}

// asciiTable holds the bytes that operational identifiers may have.
var asciiTable = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x01, Hi: 0x7f, Stride: 1}}, LatinOffset: 1}
