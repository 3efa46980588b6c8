// Package backend is the contract between the queue and everything above it:
// the messages, the [Queue] interface, its configuration and its errors.
//
// Backends live in sub-packages (mysql, memory). Every one of them passes the
// suite in backendtest.
package backend
