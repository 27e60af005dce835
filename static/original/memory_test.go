package original

import "testing"

func TestMemory(t *testing.T) {
	m := NewMemory(100)
	a := m.Join()
	a.Add(100)
	if a.Excess() != 0 || !m.Fits(0) || m.Fits(1) {
		t.Errorf("one table that is full: %d too much", a.Excess())
	}
	b := m.Join()
	b.Add(30)
	if a.Excess() != 30 || b.Excess() != 0 {
		t.Errorf("another one has come: %d and %d too much", a.Excess(), b.Excess())
	}
	b.Add(50)
	if a.Excess() != 50 || b.Excess() != 30 {
		t.Errorf("both have more than their part: %d and %d too much", a.Excess(), b.Excess())
	}
	a.Add(-50)
	b.Add(-30)
	if m.Used() != 100 || a.Excess() != 0 || b.Excess() != 0 {
		t.Errorf("%d held; %d and %d too much", m.Used(), a.Excess(), b.Excess())
	}
	b.Add(-b.Held())
	b.Leave()
	a.Add(60)
	if a.Excess() != 10 {
		t.Errorf("alone again: %d too much", a.Excess())
	}
}
