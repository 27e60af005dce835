package bus

import "context"

// Memory is the bus of one process.
type Memory struct{}

// NewMemory returns a bus whose epoch is its own: positions of before a restart are not taken for its.
func NewMemory(keep Keep) *Memory { panic("not built") }

var _ Bus = (*Memory)(nil)

// Start implements Bus.
func (m *Memory) Start(l Listener) error { panic("not built") }

// Publish implements Bus. Deliver is called before it returns.
func (m *Memory) Publish(ctx context.Context, msg Message) (Message, error) { panic("not built") }

// Listen implements Bus.
func (m *Memory) Listen(channel string) error { panic("not built") }

// Ignore implements Bus.
func (m *Memory) Ignore(channel string) { panic("not built") }

// History implements Bus; done is called before it returns.
func (m *Memory) History(channel string, since *Position, limit int, done func(History, error)) {
	panic("not built")
}

// Members implements Bus; done is called before it returns.
func (m *Memory) Members(channel string, done func([]Member, error)) { panic("not built") }

// Close implements Bus.
func (m *Memory) Close() error { panic("not built") }
