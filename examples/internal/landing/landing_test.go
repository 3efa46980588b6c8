package landing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenantmq/tenantmq/backend"
	"github.com/tenantmq/tenantmq/examples/internal/landing"
)

func TestCheckChange(t *testing.T) {
	for _, name := range []string{"61a81fae49dc", "feature/x-1.2_b", "-x", strings.Repeat("x", landing.MaxChange)} {
		if err := landing.CheckChange(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", ".", "..", "a..b", "../a", "a/../b", "a//b", "/a", "a/", "a.", "a b", "a@b", "a:b", "a~1", "a^{tree}", "a\nb", "a\x00", "é",
		strings.Repeat("x", landing.MaxChange+1),
	} {
		if err := landing.CheckChange(name); !errors.Is(err, backend.ErrInvalid) || !strings.HasPrefix(err.Error(), "change ") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
