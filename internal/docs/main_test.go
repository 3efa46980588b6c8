package docs

import (
	"testing"

	"github.com/tenantmq/tenantmq/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }
