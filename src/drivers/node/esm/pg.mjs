export * from '../dist/pg.js'
