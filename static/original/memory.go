package original

import "sync/atomic"

// Memory is a number of bytes that several tables fill together: a folder's
// files as they are, and what was made of them. No content is in two of them.
// Each table decides what it lets go of, and does so while Excess says that it
// has too much.
type Memory struct {
	limit  int64
	used   atomic.Int64
	tables atomic.Int64
}

// NewMemory returns room for limit bytes.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Used is how many bytes are held in all tables.
func (m *Memory) Used() int64 { return m.used.Load() }

// Fits reports whether n more bytes fit without anything being let go of.
func (m *Memory) Fits(n int64) bool { return m.used.Load()+n <= m.limit }

// Join adds a table, which has to Leave when it is closed.
func (m *Memory) Join() *Share {
	m.tables.Add(1)
	return &Share{Memory: m}
}

// Share is what one table holds of a Memory. All methods may be called at once.
type Share struct {
	*Memory
	held atomic.Int64
}

// Add notes that the table holds n bytes more, or less.
func (s *Share) Add(n int64) {
	s.held.Add(n)
	s.used.Add(n)
}

// Held is how many bytes the table has.
func (s *Share) Held() int64 { return s.held.Load() }

// Excess is how many bytes the table should let go of: nothing while all of
// them together keep to the limit, or while it has no more than its equal part
// of that. A table that is asked for little leaves the others what it does not
// use, and gets its part back when it needs it.
func (s *Share) Excess() int64 {
	part := s.limit / max(1, s.tables.Load())
	return max(0, min(s.used.Load()-s.limit, s.held.Load()-part))
}

// Leave gives the part back. The table must have let go of everything.
func (s *Share) Leave() { s.tables.Add(-1) }
