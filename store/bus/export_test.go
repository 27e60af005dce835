package bus

// Channels is how many are in memory.
func Channels(m *Memory) int {
	n := 0
	for i := range m.shards {
		m.shards[i].mu.Lock()
		n += len(m.shards[i].channels)
		m.shards[i].mu.Unlock()
	}
	return n
}

// Bytes are those that are kept.
func Bytes(m *Memory) int64 { return m.bytes.Load() }
