// Command schema prints the queue's tables as SQL for other migration tools; it
// makes backend/mysql/schema.sql.
package main

import (
	"fmt"

	"github.com/tenantmq/tenantmq/backend/mysql"
)

func main() {
	fmt.Print("-- Made by `make generate` from backend/mysql/migrations. Records the schema version as well.\n\n", mysql.Schema())
}
