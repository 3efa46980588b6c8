package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, c := range []struct {
		list string
		want []tenants.ID
	}{
		{"a", []tenants.ID{"a"}},
		{"b,a", []tenants.ID{"b", "a"}},
		{" a ,\tb\r\n,c\n", []tenants.ID{"a", "b", "c"}},
		{"two words, A, a", []tenants.ID{"two words", "A", "a"}},
		{strings.Repeat("x", tenants.MaxLength), []tenants.ID{tenants.ID(strings.Repeat("x", tenants.MaxLength))}},
	} {
		t.Setenv(tenants.EnvVar, c.list)
		for _, parse := range []func() (tenants.Set, error){
			func() (tenants.Set, error) { return tenants.Parse(c.list) },
			tenants.FromEnv,
		} {
			set, err := parse()
			if err != nil {
				t.Errorf("%q: %v", c.list, err)
			}
			if got := set.IDs(); !slices.Equal(got, c.want) || set.Len() != len(c.want) {
				t.Errorf("%q: got %q, want %q", c.list, got, c.want)
			}
		}
	}
}

func TestParseNamesPositionAndValue(t *testing.T) {
	long := strings.Repeat("x", tenants.MaxLength+1)
	for _, c := range []struct {
		list  string
		want  []string
		empty bool
	}{
		{"", []string{"no names", "at least one"}, true},
		{" \t\n", []string{"no names"}, true},
		{",", []string{"position 1", "empty"}, false},
		{"a,,b", []string{"position 2", "empty", "drop the entry"}, false},
		{"a,b, ", []string{"position 3", "empty"}, false},
		{"a,b,a", []string{"position 3", `"a"`, "position 1", "once"}, false},
		{"a, " + long, []string{"position 2", `"xxx`, "256 bytes", "at most 255"}, false},
		{"a,\u00fc", []string{"position 2", `"ü"`, "0xC3", "ASCII"}, false},
		{"a,b\x00c", []string{"position 2", `"b\x00c"`, "0x00 at index 1"}, false},
		{"a\xff", []string{"position 1", `"a\xff"`, "0xFF at index 1"}, false},
	} {
		_, err := tenants.Parse(c.list)
		if !errors.Is(err, tenants.ErrInvalid) || errors.Is(err, tenants.ErrEmpty) != c.empty {
			t.Errorf("%q: got error %v", c.list, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q does not name %q", c.list, err, want)
			}
		}
		if len(err.Error()) > 200 {
			t.Errorf("%q: the error is not shortened: %q", c.list, err)
		}
	}
}

func TestFromEnvNamesTheVariable(t *testing.T) {
	for _, list := range []string{"", "a,,b"} {
		t.Setenv(tenants.EnvVar, list)
		_, err := tenants.FromEnv()
		if !errors.Is(err, tenants.ErrInvalid) || !strings.Contains(err.Error(), "MQ_TENANTS") {
			t.Errorf("%q: got error %v, want one that names MQ_TENANTS", list, err)
		}
	}
}

// New does not trim: what a program passes is meant as it stands.
func TestNewRefusesTrailingSpace(t *testing.T) {
	_, err := tenants.New("a", "b ")
	if !errors.Is(err, tenants.ErrInvalid) || !strings.Contains(err.Error(), `position 2 "b "`) {
		t.Errorf("got error %v", err)
	}
	if _, err := tenants.New(); !errors.Is(err, tenants.ErrEmpty) {
		t.Errorf("no names: got error %v, want ErrEmpty", err)
	}
}

func TestSetIsImmutable(t *testing.T) {
	given := []tenants.ID{"a", "b"}
	set, err := tenants.New(given...)
	if err != nil {
		t.Fatal(err)
	}
	given[0] = "x"
	set.IDs()[1] = "y"
	if got := set.IDs(); !slices.Equal(got, []tenants.ID{"a", "b"}) || !set.Contains("a") || set.Contains("x") {
		t.Errorf("the set changed: %q", got)
	}
}

func TestCheckNamesTenantAndList(t *testing.T) {
	var ids []tenants.ID
	for i := range 1000 {
		ids = append(ids, tenants.ID(fmt.Sprintf("t%03d", i)))
	}
	set, err := tenants.New(ids...)
	if err != nil {
		t.Fatal(err)
	}
	if err := set.Check("t999"); err != nil {
		t.Errorf("a listed tenant: %v", err)
	}
	err = set.Check("T999")
	if !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Fatalf("got error %v, want ErrUnknownTenant", err)
	}
	for _, want := range []string{`"T999"`, `"t000", "t001"`, "and 992 more", "MQ_TENANTS"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
	if err := (tenants.Set{}).Check("a"); !errors.Is(err, tenants.ErrUnknownTenant) || !strings.Contains(err.Error(), "no tenants") {
		t.Errorf("an empty set: got error %v", err)
	}
}

func TestContextCarriesTheTenant(t *testing.T) {
	ctx := tenants.NewContext(context.Background(), "a")
	if id, ok := tenants.FromContext(ctx); id != "a" || !ok {
		t.Errorf("got %q, %v", id, ok)
	}
	if id, ok := tenants.FromContext(context.Background()); ok {
		t.Errorf("a context without a tenant gave %q", id)
	}
}

// The rule is written twice because backend imports tenants: what one accepts
// the other accepts.
func TestValidateAgreesWithBackend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := tenants.ID(rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[\x00-\x80]{0,3} ?`),
			rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "bytes")) }),
			rapid.StringOfN(rapid.RuneFrom([]rune("a ")), 250, 260, -1),
		).Draw(t, "id"))
		ours, theirs := id.Validate(), backend.CheckTenant(id)
		if (ours == nil) != (theirs == nil) {
			t.Fatalf("%q: tenants says %v, backend says %v", id, ours, theirs)
		}
		if ours != nil && !errors.Is(ours, tenants.ErrInvalid) {
			t.Fatalf("%q: %v does not wrap ErrInvalid", id, ours)
		}
		if _, err := tenants.New(id); (err == nil) != (ours == nil) {
			t.Fatalf("%q: New says %v, Validate says %v", id, err, ours)
		}
	})
}
