package tenants_test

import (
	"context"
	"fmt"
	"os"

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

func ExampleNew() {
	set, err := tenants.New("monorepo", "docs")
	fmt.Println(set.IDs(), set.Contains("docs"), set.Contains("ios"), err)

	_, err = tenants.New("monorepo", "docs ")
	fmt.Println(err)
	// Output:
	// [monorepo docs] true false <nil>
	// invalid tenant at position 2 "docs ": trailing space; drop it, the database compares as if it were absent
}

// A process learns from its environment whom it serves.
func ExampleFromEnv() {
	os.Setenv("MQ_TENANTS", "monorepo,docs")
	defer os.Unsetenv("MQ_TENANTS")

	set, err := tenants.FromEnv()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range set.IDs() {
		fmt.Println("serving", id)
	}
	// Output:
	// serving monorepo
	// serving docs
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
