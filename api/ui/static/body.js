// How a message's body is shown.

const deepest = 20; // levels that are indented; further ones stay on the line, or thousands of brackets would be a page of blanks

// pretty indents JSON. It moves its parts and changes none: a number with many digits, or a name that is there twice, stays as it was sent.
export function pretty(text) {
  try { JSON.parse(text); } catch { return text; }
  const out = [], parts = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  const line = () => (depth <= deepest ? `\n${'  '.repeat(depth)}` : '');
  parts.forEach((part, i) => {
    if (part === '{' || part === '[') {
      out.push(part);
      depth++;
      if (!closes(parts[i + 1])) out.push(line());
    } else if (closes(part)) {
      const gap = '{['.includes(parts[i - 1]) ? '' : line();
      depth--;
      out.push(gap && line(), part);
    } else out.push(part === ',' ? `,${line()}` : part === ':' ? ': ' : part);
  });
  return out.join('');
}

const closes = (part) => part === '}' || part === ']';

export function hex(bytes) {
  const lines = [];
  for (let i = 0; i < bytes.length; i += 16) {
    const row = [...bytes.slice(i, i + 16)];
    lines.push(`${i.toString(16).padStart(5, '0')}  ${row.map((b) => b.toString(16).padStart(2, '0')).join(' ').padEnd(47)}  ${row.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : '.')).join('')}`);
  }
  return lines.join('\n');
}
