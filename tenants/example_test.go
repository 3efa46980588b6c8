package tenants_test

import (
	"context"
	"fmt"

	"github.com/tenantmq/tenantmq/tenants"
)

func ExampleParse() {
	set, err := tenants.Parse("monorepo, docs , ios")
	fmt.Println(set, err)

	_, err = tenants.Parse("monorepo,,ios")
	fmt.Println(err)
	_, err = tenants.Parse("monorepo,ios,monorepo")
	fmt.Println(err)
	// Output:
	// "monorepo", "docs", "ios" <nil>
	// invalid tenant at position 2: the name is empty; give one or drop the entry
	// invalid tenant at position 3 "monorepo": the same as position 1; list each once
}

// An ingress refuses names outside the list before anything is stored.
func ExampleSet_Check() {
	set, _ := tenants.New("monorepo", "docs")
	fmt.Println(set.Check("docs"))
	fmt.Println(set.Check("dosc"))
	// Output:
	// <nil>
	// unknown tenant "dosc": MQ_TENANTS lists "monorepo", "docs"
}

func ExampleFromContext() {
	handle := func(ctx context.Context) {
		tenant, ok := tenants.FromContext(ctx)
		fmt.Println(tenant, ok)
	}
	handle(tenants.NewContext(context.Background(), "docs"))
	// Output: docs true
}
