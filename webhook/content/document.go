package content

import (
	"strconv"
	"sync"
)

// document is a body as one JSON value. Whether it is one is asked by few: where nobody does, a
// body is not read at all. What filters ask for is found once, whatever the number of their
// conditions and of webhooks. Safe for concurrent use.
type document struct {
	body []byte

	mu   sync.Mutex
	read bool
	root node
}

// json is the value; nil when the body is not JSON.
func (d *document) json() []byte {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.read {
		d.read, d.root.raw = true, jsonDocument(d.body)
	}
	return d.root.raw
}

// find follows a path in a body that is JSON; nil when it leads nowhere.
func (d *document) find(path []string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.root
	for _, name := range path {
		if at = at.child(name); at == nil {
			return nil
		}
	}
	return at.raw
}

// node is a value, with what is directly within it once somebody has asked for that.
type node struct {
	raw     []byte
	read    bool
	members map[string]*node // of several of a name the last
	list    []*node
}

func (n *node) child(name string) *node {
	if !n.read {
		n.read = true
		n.members = map[string]*node{}
		for key, value := range members(n.raw) {
			if text, ok := Unquote(key); ok {
				n.members[text] = &node{raw: value}
			}
		}
		for value := range elements(n.raw) {
			n.list = append(n.list, &node{raw: value})
		}
	}
	if n.raw[0] != '[' {
		return n.members[name]
	}
	index, err := strconv.Atoi(name)
	if err != nil || strconv.Itoa(index) != name || index < 0 || index >= len(n.list) {
		return nil
	}
	return n.list[index]
}
