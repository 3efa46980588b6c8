//go:build cgo

package peer

const cgo = true
