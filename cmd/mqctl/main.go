// Command mqctl looks at the queue and repairs it, without SQL: what is stuck,
// for which tenant, and why. docs/mqctl.md is its manual.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
