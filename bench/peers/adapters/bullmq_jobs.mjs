// BullMQ: a job scheduler for each fire and one worker, over Redis (WORK_STORE). The worker's defaults but for its
// concurrency: a lock lasts 30 s, and stalled jobs are looked for every 30 s.
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';

const require = createRequire(path.join(process.env.WORK_MODULES, 'index.js'));
const { Queue, Worker } = require('bullmq');

const AT_ONCE = 100;
const { hostname, port } = new URL(process.env.WORK_STORE);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
const dueAt = new Date(Number(process.env.WORK_DUE_AT) * 1000);
const agent = new http.Agent({ keepAlive: true, maxSockets: AT_ONCE });
const body = JSON.stringify({ report: 'daily', customer: 4711, padding: 'x'.repeat(150) });

function call(number) {
  return new Promise((resolve, reject) => {
    const headers = {
      'webhook-id': `job-${number}`,
      'onbeat-scheduled-at': dueAt.toISOString(),
      'content-type': 'application/json',
      'content-length': body.length,
    };
    const request = http.request(process.env.WORK_URL, { method: 'POST', agent, headers }, (answer) => {
      answer.resume();
      answer.on('end', () => (answer.statusCode < 400 ? resolve() : reject(new Error(answer.statusCode))));
    });
    request.on('error', reject);
    request.end(body);
  });
}

if (process.argv[2] === 'prepare') {
  const queue = new Queue('peers', { connection });
  const pattern = `${dueAt.getUTCSeconds()} ${dueAt.getUTCMinutes()} ${dueAt.getUTCHours()} * * *`;
  for (let start = 0; start < Number(process.env.WORK_JOBS); start += 200) {
    const numbers = Array.from({ length: Math.min(200, process.env.WORK_JOBS - start) }, (_, index) => start + index);
    await Promise.all(
      numbers.map((number) =>
        queue.upsertJobScheduler(`job-${number}`, { pattern, tz: 'UTC' }, { name: 'call', data: { number } }),
      ),
    );
  }
  await queue.close();
} else {
  new Worker('peers', (job) => call(job.data.number), { connection, concurrency: AT_ONCE });
}
