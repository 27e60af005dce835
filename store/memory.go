package store

import "millrace/internal/bytesize"

// NewMemory returns a store in memory, bounded in bytes.
func NewMemory(limit bytesize.Size) *Memory { panic("not built") }

// Memory keeps objects in memory.
type Memory struct{ Store }
