package field

// Line is one line of a header: a field's canonical name and one of its values.
type Line struct{ Name, Value string }

// SortLines puts lines in the order of their names. Those of one name keep their
// order. It is made for a few lines that mostly stand in no order at all.
func SortLines(lines []Line) {
	for i := 1; i < len(lines); i++ {
		for j := i; j > 0 && lines[j].Name < lines[j-1].Name; j-- {
			lines[j], lines[j-1] = lines[j-1], lines[j]
		}
	}
}
