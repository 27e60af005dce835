package fill

import "testing"

// TestAbandon: who is alone may give a fill up; nobody else's ends with it.
func TestAbandon(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("k")
	late, leads := g.Join("k")
	if !f.Enter() || leads || late != f {
		t.Fatal("it cannot be joined")
	}
	if !f.Abandon() {
		t.Error("it went on for nobody")
	}
	if late.Enter() {
		t.Error("one that was given up can be waited for")
	}
	f.Leave()
	f.Finish()
	if n := g.Running(); n != 0 {
		t.Errorf("%d go on", n)
	}
	f, leads = g.Join("k")
	if !leads || !f.Enter() || !f.Enter() {
		t.Fatal("the next one cannot lead")
	}
	if f.Abandon() {
		t.Error("it ended while somebody waited")
	}
	f.Settle(1)
	if got, err := f.Wait(t.Context()); got != 1 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	f.Finish()
	if !f.Abandon() {
		t.Error("one that has ended goes on")
	}
}
