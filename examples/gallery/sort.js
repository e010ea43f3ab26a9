// Node: sorts 20 million numbers in a typed array, and counts how many are unlike their neighbours.
const numbers = new Float64Array(2e7);
for (let i = 0; i < numbers.length; i++) numbers[i] = (i * 7919) % 1000003;
numbers.sort();
let unlike = 1;
for (let i = 1; i < numbers.length; i++) if (numbers[i] !== numbers[i - 1]) unlike++;
console.log(`${numbers.length} numbers, ${unlike} unlike; the middle is ${numbers[numbers.length / 2]}`);
